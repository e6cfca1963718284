#include "lockstep/nn/exported/code.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <variant>

#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/exported/training_flag.h"
#include "lockstep/nn/weights.h"

namespace lockstep::nn::exported {
namespace {

constexpr const char* kTraining = "train";
constexpr const char* kEvaluation = "eval";

std::string text_of_names(const ExportedArchive& archive) {
  std::vector<std::string> names;
  for (const ExportedProgram& program : archive.programs) names.push_back(printable(program.name));
  return first_of(names, names.size());
}

// That of training first.
std::vector<const ExportedProgram*> programs_of(const ExportedArchive& archive) {
  if (archive.programs.size() == 1) return {&archive.programs.front()};
  std::vector<const ExportedProgram*> both;
  for (const char* const name : {kTraining, kEvaluation}) {
    const auto found = std::ranges::find(archive.programs, name, &ExportedProgram::name);
    if (found != archive.programs.end()) both.push_back(&*found);
  }
  if (both.size() != 2 || archive.programs.size() != 2)
    throw DataError(concat(archive.file, ": it has the programs ", text_of_names(archive),
        "; a model of several has two, `train` and `eval`"));
  return both;
}

/// The tensors of all programs of an archive.
class HeldTensors {
 public:
  HeldTensors(const ExportedArchive& archive, bool leaves_parameters_empty)
      : archive_(archive), leaves_parameters_empty_(leaves_parameters_empty) {}

  /// Returns the index of what an input of a program holds.
  std::size_t index_of(const ExportedProgram& program, const ExportedInputSpec& input) {
    const TensorEntry* const entry = program.tensors.find(input.target);
    if (entry == nullptr) refuse(program, input, "has no tensor in the archive");
    const HeldTensor::Kind kind = kind_of(input);
    // Two programs' constants of one name have nothing in common.
    const std::string scope = kind == HeldTensor::Kind::kConstant ? program.name : "";
    const auto [place, is_new] = places_.try_emplace({kind, scope, input.target}, held_.size());
    is_new ? add(program, input, kind, *entry) : compare(program, input, place->second, *entry);
    return place->second;
  }

  /// Returns the index of the parameter or buffer of that name.
  std::optional<std::size_t> find(const std::string& name) const {
    const auto found = std::ranges::find_if(held_, [&](const HeldTensor& each) {
      return each.name == name && each.kind != HeldTensor::Kind::kConstant;
    });
    if (found == held_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - held_.begin());
  }

  /// Says that a tensor is the weight of two-dimensional convolutions.
  void note_kernel(std::size_t index) { held_[index].is_kernel = true; }

  std::size_t size() const { return held_.size(); }
  std::vector<HeldTensor> take_held() { return std::move(held_); }
  std::vector<torch::Tensor> take_tensors() { return std::move(tensors_); }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(
      const ExportedProgram& program, const ExportedInputSpec& input, const Parts&... parts) const {
    throw DataError(concat(archive_.file, ": program ", printable(program.name), ": ",
        printable(input.target), " ", parts...));
  }

  static HeldTensor::Kind kind_of(const ExportedInputSpec& input) {
    using Kind = ExportedInputSpec::Kind;
    if (input.kind == Kind::kParameter) return HeldTensor::Kind::kParameter;
    if (input.kind == Kind::kConstant) return HeldTensor::Kind::kConstant;
    return input.persistent ? HeldTensor::Kind::kBuffer : HeldTensor::Kind::kUnsavedBuffer;
  }

  void add(const ExportedProgram& program, const ExportedInputSpec& input, HeldTensor::Kind kind,
      const TensorEntry& entry) {
    if (!scalar_type_of(entry.type)) refuse(program, input, "has a type that LibTorch lacks");
    const std::size_t index = held_.size();
    std::size_t first = index;
    const bool may_be_tied = kind != HeldTensor::Kind::kConstant && !entry.bytes.empty();
    if (may_be_tied)
      first = same_.try_emplace({entry.bytes.data(), entry.shape, entry.type}, index).first->second;
    held_.push_back({kind, input.target, first});
    tensors_.push_back(first == index ? made(kind, entry) : tensors_[first]);
    entries_.push_back(&entry);
    const auto* value = std::get_if<ExportedName>(&input.value.content);
    const auto known = program.graph.tensors.find(value == nullptr ? "" : value->name);
    if (kind == HeldTensor::Kind::kParameter && known != program.graph.tensors.end())
      tensors_.back().set_requires_grad(known->second.requires_grad);
  }

  // Whole numbers may be indices, with which a model is tried out before it is filled.
  torch::Tensor made(HeldTensor::Kind kind, const TensorEntry& entry) const {
    const torch::ScalarType type = *scalar_type_of(entry.type);
    if (leaves_parameters_empty_ && kind == HeldTensor::Kind::kParameter &&
        c10::isFloatingType(type))
      return at::empty(entry.shape, type);
    torch::Tensor tensor = tensor_of(entry);
    forget(entry);
    return tensor;
  }

  void forget(const TensorEntry& entry) const {
    if (archive_.memory) archive_.memory->forget(entry.bytes);
  }

  // Statistics may have moved on between two exports, weights may not.
  void compare(const ExportedProgram& program, const ExportedInputSpec& input, std::size_t index,
      const TensorEntry& entry) const {
    const TensorEntry& known = *entries_[index];
    if (known.shape != entry.shape || known.type != entry.type)
      refuse(program, input, "is ", shape_text(entry.shape), " of ", torch_name(entry.type),
          ", but in another program ", shape_text(known.shape), " of ", torch_name(known.type));
    if (held_[index].kind == HeldTensor::Kind::kParameter &&
        !std::ranges::equal(known.bytes, entry.bytes))
      refuse(
          program, input, "has other values than in another program; export both from one model");
    forget(known);
    forget(entry);
  }

  const ExportedArchive& archive_;
  bool leaves_parameters_empty_;
  std::vector<HeldTensor> held_;
  std::vector<torch::Tensor> tensors_;
  std::vector<const TensorEntry*> entries_;
  std::map<std::tuple<HeldTensor::Kind, std::string, std::string>, std::size_t> places_;
  std::map<std::tuple<const void*, std::vector<std::int64_t>, ElementType>, std::size_t> same_;
};

/// The making of one program.
class ProgramBuilder {
 public:
  ProgramBuilder(const ExportedArchive& archive, const ExportedProgram& from, HeldTensors& held)
      : from_(from),
        held_(held),
        is_alone_(archive.programs.size() == 1),
        settings_{concat(archive.file, ": program ", printable(from.name)),
            is_alone_ || from.name == kTraining,
            !is_alone_ || is_exported_in_training(from.graph)} {}

  Program build(Code& code) {
    GraphNeeds needs{.modules = std::move(code.modules)};
    Program program{.graph = ExecutableGraph(from_.graph, settings_, needs),
        .forms = InputForms(from_, settings_.name)};
    for (const ExportedInputSpec& input : from_.inputs) program.inputs.push_back(input_of(input));
    note_kernels(program);
    std::size_t named = 0;
    for (const ExportedOutputSpec& output : from_.outputs)
      program.outputs.push_back(output_of(output, named, needs));
    program.first_output = first_output();
    program.needs_python_layout = needs.reads_strides;
    mark_overwritten(program);
    mark_changed(program);
    code.modules = std::move(needs.modules);
    if (code.decomposed_norm.empty()) code.decomposed_norm = needs.decomposed_norm;
    if (is_alone_ && settings_.is_exported_in_training) code.without_evaluation = needs.random_node;
    return program;
  }

 private:
  using Kind = ExportedOutputSpec::Kind;

  void note_kernels(const Program& program) {
    std::set<std::string> kernels;
    for (const ExportedNode& node : from_.graph.nodes) {
      if (!node.target.starts_with("torch.ops.aten.conv2d.") &&
          !node.target.starts_with("torch.ops.aten.conv_transpose2d."))
        continue;
      for (const ExportedInput& input : node.inputs) {
        const auto* const name = std::get_if<ExportedName>(&input.argument.content);
        if (input.name == "weight" && name != nullptr) kernels.insert(name->name);
      }
    }
    for (std::size_t i = 0; i < from_.inputs.size(); ++i) {
      const auto* const name = std::get_if<ExportedName>(&from_.inputs[i].value.content);
      const Program::Input& input = program.inputs[i];
      if (input.kind == Program::Input::Kind::kHeld && name && kernels.contains(name->name))
        held_.note_kernel(input.index);
    }
  }

  static void mark_overwritten(Program& program) {
    using Output = Program::Output::Kind;
    using Input = Program::Input::Kind;
    for (const auto& output : program.outputs) {
      for (auto& input : program.inputs) {
        const bool is_same = (output.kind == Output::kIntoHeld && input.kind == Input::kHeld) ||
                             (output.kind == Output::kIntoInput && input.kind == Input::kUser);
        if (is_same && input.index == output.index) input.is_overwritten = true;
      }
    }
  }

  static void mark_changed(Program& program) {
    for (std::size_t i = 0; i < program.inputs.size(); ++i)
      program.inputs[i].is_changed = program.inputs[i].is_overwritten || program.graph.changes(i);
  }

  const ExportedTensor* tensor_of_value(const ExportedArgument& value) const {
    const auto* name = std::get_if<ExportedName>(&value.content);
    const auto found = from_.graph.tensors.find(name == nullptr ? "" : name->name);
    return found == from_.graph.tensors.end() ? nullptr : &found->second;
  }

  Program::Input input_of(const ExportedInputSpec& input) {
    using Input = Program::Input;
    switch (input.kind) {
      case ExportedInputSpec::Kind::kConstantValue:
        return {};
      case ExportedInputSpec::Kind::kUser:
        if (tensor_of_value(input.value) == nullptr) return {};
        user_values_.push_back(std::get<ExportedName>(input.value.content).name);
        return {Input::Kind::kUser, user_values_.size() - 1};
      default:
        return {Input::Kind::kHeld, held_.index_of(from_, input)};
    }
  }

  Program::Output output_of(
      const ExportedOutputSpec& output, std::size_t& named, GraphNeeds& needs) const {
    using Output = Program::Output;
    switch (output.kind) {
      case Kind::kUser:
      case Kind::kLoss: {
        const std::string& name = from_.output_names.at(named++);
        const ExportedTensor* const tensor = tensor_of_value(output.value);
        if (tensor == nullptr) return {};
        return {Output::Kind::kResult, name, 0, std::nullopt, tensor->shape.empty()};
      }
      case Kind::kInputMutation: {
        const auto found = std::ranges::find(user_values_, output.target);
        if (found == user_values_.end()) refuse_target(output);
        return {Output::Kind::kIntoInput, "",
            static_cast<std::size_t>(found - user_values_.begin()), std::nullopt};
      }
      case Kind::kParameterMutation:
      case Kind::kBufferMutation:
        break;
    }
    const auto found = held_.find(output.target);
    if (!found) refuse_target(output);
    return {Output::Kind::kIntoHeld, "", *found, counter_of(output.target, needs)};
  }

  [[noreturn]] void refuse_target(const ExportedOutputSpec& output) const {
    throw DataError(concat(
        settings_.name, ": an output changes ", printable(output.target), ", which it lacks"));
  }

  // Of a batch norm, as the node that counts in a program that changes tensors in place.
  std::optional<std::size_t> counter_of(const std::string& target, GraphNeeds& needs) const {
    constexpr std::string_view kCounter = "num_batches_tracked";
    if (!settings_.follows_modes || !target.ends_with(kCounter)) return std::nullopt;
    const std::size_t length = target.size() - kCounter.size();
    const std::string path = target.substr(0, length == 0 ? 0 : length - 1);
    const auto found = std::ranges::find(needs.modules, path);
    const auto index = static_cast<std::size_t>(found - needs.modules.begin());
    if (found == needs.modules.end()) needs.modules.push_back(path);
    return index;
  }

  std::optional<ExportedTensor> first_output() const {
    for (const ExportedOutputSpec& output : from_.outputs) {
      const bool is_of_user = output.kind == Kind::kUser || output.kind == Kind::kLoss;
      const ExportedTensor* const tensor = tensor_of_value(output.value);
      if (is_of_user && tensor != nullptr) return *tensor;
    }
    return std::nullopt;
  }

  const ExportedProgram& from_;
  HeldTensors& held_;
  bool is_alone_;
  GraphSettings settings_;
  std::vector<std::string> user_values_;
};

bool is_saved(const HeldTensor& held) {
  return held.kind == HeldTensor::Kind::kParameter || held.kind == HeldTensor::Kind::kBuffer;
}

// Both programs take and save the same.
void check_alike(const ExportedArchive& archive, const Code& code, std::size_t of_first) {
  if (code.programs.size() == 1) return;
  for (std::size_t i = of_first; i < code.held.size(); ++i) {
    if (is_saved(code.held[i]))
      throw DataError(concat(archive.file, ": only one of the two programs has ",
          printable(code.held[i].name), "; export both from one model"));
  }
  const auto& [training, evaluation] = std::tie(code.programs[0], code.programs[1]);
  if (training.forms.names() != evaluation.forms.names())
    throw DataError(concat(archive.file, ": the two programs take other inputs: ",
        training.forms.text(), " and ", evaluation.forms.text()));
}

// Neither snapshots nor other ranks would know of it.
std::string changed_but_unsaved(const Code& code) {
  for (const Program& program : code.programs) {
    for (const Program::Input& input : program.inputs) {
      if (input.kind != Program::Input::Kind::kHeld || !input.is_changed) continue;
      const HeldTensor& held = code.held[input.index];
      if (!is_saved(held)) return held.name;
    }
  }
  return "";
}

}  // namespace

std::pair<Code, std::vector<torch::Tensor>> code_of(
    const ExportedArchive& archive, bool leaves_parameters_empty) {
  Code code{.file = archive.file};
  HeldTensors held(archive, leaves_parameters_empty);
  std::size_t of_first = 0;
  for (const ExportedProgram* const program : programs_of(archive)) {
    code.programs.push_back(ProgramBuilder(archive, *program, held).build(code));
    if (code.programs.size() == 1) of_first = held.size();
  }
  code.held = held.take_held();
  check_alike(archive, code, of_first);
  code.lost_state = changed_but_unsaved(code);
  return {std::move(code), held.take_tensors()};
}

}  // namespace lockstep::nn::exported
