#pragma once

// Programs of some nodes, whose fused steps are compared with the nodes.

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/exported/small_program.h"
#include <ATen/ops/arange.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::testing {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Named = std::vector<std::pair<std::string, ExportedArgument>>;

inline constexpr auto kReal = ElementType::kFloat32;

inline ExportedArgument whole_numbers(const std::vector<std::int64_t>& numbers) {
  ExportedList list;
  for (const std::int64_t number : numbers) list.push_back({number});
  return {list};
}

/// A program of nodes of aten, by the names of its values.
class Nodes {
 public:
  Nodes& input(
      const std::string& name, const std::vector<std::int64_t>& sizes, ElementType type = kReal) {
    program_.input(name, sizes);
    program_.graph().tensors[name].type = type;
    return *this;
  }
  Nodes& weight(const std::string& name, c10::ArrayRef<std::int64_t> sizes) {
    program_.held(ExportedInputSpec::Kind::kParameter, name, name, sizes);
    return *this;
  }
  Nodes& node(const std::string& result, const std::string& target, const Named& arguments) {
    program_.node("torch.ops.aten." + target, arguments, result, module_);
    return *this;
  }
  Nodes& one(const std::string& result, const std::string& target, const std::string& of) {
    return node(result, target, {{"self", value(of)}});
  }
  Nodes& two(const std::string& result, const std::string& target, const std::string& one,
      const ExportedArgument& other) {
    return node(result, target, {{"self", value(one)}, {"other", other}});
  }
  Nodes& output(const std::string& name) {
    program_.output(name);
    return *this;
  }
  Nodes& in_module(const std::string& name) {
    module_ = name;
    return *this;
  }
  SmallProgram& program() { return program_; }

  std::vector<std::size_t> fused() { return nodes_of_fused_steps(program_); }

  nn::ExportedModule module() const {
    return nn::ExportedModule(std::make_shared<nn::ExportedModuleImpl>(program_.archive()));
  }

 private:
  SmallProgram program_;
  std::string module_;
};

using Fused = std::vector<std::size_t>;

/// The first output, and the gradients of inputs and parameters.
inline Tensors learned(const Nodes& nodes, const Tensors& drawn, nn::Kernels kernels,
    std::string* name = nullptr, torch::ScalarType type = torch::kFloat) {
  const nn::KernelScope scope(kernels);
  auto module = nodes.module();
  module->to(type);
  torch::manual_seed(5);
  for (Tensor& parameter : module->parameters()) parameter.data().normal_();
  Tensors inputs, wanted = module->parameters();
  for (const Tensor& each : drawn) {
    inputs.push_back(each.is_floating_point() ? each.detach().to(type, false, true) : each);
    if (each.is_floating_point()) wanted.push_back(inputs.back().requires_grad_());
  }
  const Tensor result = module->first_output(inputs);
  if (name != nullptr) *name = result.grad_fn()->name();
  const Tensor weights = at::arange(1, result.numel() + 1).view_as(result).to(result.dtype()).sin();
  Tensors outcome = torch::autograd::grad({(result * weights).sum()}, wanted);
  outcome.push_back(result);
  return outcome;
}

inline void expect_close(const Tensors& found, const Tensors& wanted, double allowed = 1e-5) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].scalar_type(), wanted[i].scalar_type()) << i;
    ASSERT_EQ(found[i].sizes(), wanted[i].sizes()) << i;
    const double size = std::max(1.0, wanted[i].abs().max().item<double>());
    EXPECT_LE((found[i] - wanted[i]).abs().max().item<double>(), allowed * size) << i;
  }
}

inline void expect_bits(const Tensors& found, const Tensors& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
}

/// Expects the kernel's node, and what the nodes compute; of LibTorch, and of other types, its
/// bits.
inline void expect_as_nodes(
    const Nodes& fused, const Nodes& plain, const Tensors& inputs, const std::string& kernel) {
  std::string name;
  const Tensors wanted = learned(plain, inputs, nn::Kernels::kLibTorch);
  expect_close(learned(fused, inputs, nn::Kernels::kOwn, &name), wanted);
  EXPECT_NE(name.find(kernel), std::string::npos) << name;
  expect_bits(learned(fused, inputs, nn::Kernels::kLibTorch, &name), wanted);
  EXPECT_EQ(name.find(kernel), std::string::npos) << name;
  for (const auto type : {torch::kDouble, torch::kHalf})
    expect_bits(learned(fused, inputs, nn::Kernels::kOwn, &name, type),
        learned(plain, inputs, nn::Kernels::kLibTorch, nullptr, type));
}

}  // namespace lockstep::testing
