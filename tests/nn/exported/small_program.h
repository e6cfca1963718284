#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/ArrayRef.h>
#include <c10/util/accumulate.h>

#include "lockstep/formats/export/exported_program.h"
#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::testing {

inline ExportedArgument value(std::string name) { return {ExportedName{std::move(name)}}; }

inline ExportedArgument list_of(const std::vector<std::int64_t>& numbers) {
  ExportedList list;
  for (const std::int64_t number : numbers) list.push_back({number});
  return {list};
}

/// A program of float tensors, written node by node as in an archive.
///
///     SmallProgram program;
///     program.input("x", {2, 3}).node("torch.ops.aten.relu.default", {{"self", value("x")}}, "y");
///     program.output("y");
class SmallProgram {
 public:
  SmallProgram() { program_.name = "model"; }

  /// Adds a tensor that the user gives.
  SmallProgram& input(const std::string& name, c10::ArrayRef<std::int64_t> shape) {
    program_.inputs.push_back({ExportedInputSpec::Kind::kUser, value(name), name, true});
    program_.input_names.push_back(name);
    return tensor(name, shape), graph_input(name);
  }

  /// Adds a tensor that the program holds, of ones.
  SmallProgram& held(ExportedInputSpec::Kind kind, const std::string& target,
      const std::string& name, c10::ArrayRef<std::int64_t> shape, bool persistent = true) {
    program_.inputs.push_back({kind, value(name), target, persistent});
    entries_.push_back(
        {target, ElementType::kFloat32, shape.vec(), bytes_of_ones(c10::multiply_integers(shape))});
    program_.tensors = TensorFile(entries_, {}, nullptr);
    tensor(name, shape, kind == ExportedInputSpec::Kind::kParameter);
    return graph_input(name);
  }

  SmallProgram& node(const std::string& target,
      const std::vector<std::pair<std::string, ExportedArgument>>& arguments,
      const std::string& result, const std::string& module = "") {
    ExportedNode node{.name = result, .target = target};
    for (const auto& [name, argument] : arguments) node.inputs.push_back({name, argument});
    if (!result.empty()) node.outputs = {value(result)};
    node.modules = {{"", "Net"}};
    if (!module.empty()) node.modules.push_back({module, "Part"});
    node.source = "net.py:7, in forward: the line of " + result;
    program_.graph.nodes.push_back(std::move(node));
    return tensor(result, {});
  }

  /// Says that a value is a number, no tensor.
  SmallProgram& number(const std::string& name) {
    program_.graph.tensors.erase(name);
    return *this;
  }

  SmallProgram& output(const std::string& name) {
    return returned(ExportedOutputSpec::Kind::kUser, name, "");
  }

  SmallProgram& returned(
      ExportedOutputSpec::Kind kind, const std::string& name, const std::string& target) {
    program_.outputs.push_back({kind, value(name), target});
    if (kind == ExportedOutputSpec::Kind::kUser) program_.output_names.push_back(name);
    program_.graph.outputs.push_back(value(name));
    return *this;
  }

  ExportedProgram& program() { return program_; }
  ExportedGraph& graph() { return program_.graph; }
  ExportedNode& last_node() { return program_.graph.nodes.back(); }

  ExportedArchive archive() const {
    return {.file = "net.pt2", .programs = {program_}, .memory = {}};
  }

  nn::ExportedModule module() const {
    return nn::ExportedModule(std::make_shared<nn::ExportedModuleImpl>(archive()));
  }

  /// Returns the program as a chain of layers, of which the first output comes.
  nn::Layers layers() const {
    return module()->layers({}, [](const auto& outputs, std::int64_t) { return outputs.front(); });
  }

 private:
  SmallProgram& graph_input(const std::string& name) {
    program_.graph.inputs.push_back(value(name));
    return *this;
  }

  SmallProgram& tensor(
      const std::string& name, c10::ArrayRef<std::int64_t> shape, bool requires_grad = false) {
    ExportedTensor tensor{.requires_grad = requires_grad};
    for (const std::int64_t size : shape) tensor.shape.push_back({size, ""});
    program_.graph.tensors[name] = tensor;
    return *this;
  }

  // Other bytes for each tensor: the same ones would be the same tensor.
  std::span<const std::uint8_t> bytes_of_ones(std::int64_t size) {
    static const std::vector<float> kOnes(256, 1.0F);
    const float* const first = kOnes.data() + taken_;
    taken_ += size;
    return {reinterpret_cast<const std::uint8_t*>(first),
        static_cast<std::size_t>(size) * sizeof(float)};
  }

  ExportedProgram program_;
  std::vector<TensorEntry> entries_;
  std::int64_t taken_ = 0;
};

/// Returns how many nodes each fused step of a program has.
inline std::vector<std::size_t> nodes_of_fused_steps(SmallProgram& program) {
  nn::exported::GraphNeeds needs;
  std::vector<std::size_t> found;
  for (const auto& step : nn::exported::parts_of(program.graph(), {"net"}, needs).steps)
    if (!step.nodes.empty()) found.push_back(step.nodes.size());
  return found;
}

}  // namespace lockstep::testing
