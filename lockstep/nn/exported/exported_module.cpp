#include "lockstep/nn/exported/exported_module.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/weights/tensor_numbers.h"
#include "lockstep/nn/exported/code.h"
#include "lockstep/nn/exported/exported_layer.h"
#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/program_frame.h"
#include "lockstep/nn/exported/segments.h"
#include "lockstep/nn/exported/stored_parameters.h"

namespace lockstep::nn {

using exported::Code;
using exported::HeldTensor;
using exported::Program;

namespace {

std::vector<std::string> numbers_of(const Program& program) {
  std::vector<std::string> names;
  for (const Program::Output& output : program.outputs) {
    if (output.is_number) names.push_back(output.name);
  }
  return names;
}

// Sizes that vary have other names in each program, and floating-point types may be chosen.
bool are_alike(const ExportedTensor& a, const ExportedTensor& b) {
  return kind_of(a.type) == kind_of(b.type) &&
         std::ranges::equal(
             a.shape, b.shape, [](const ExportedSize& one, const ExportedSize& other) {
               return !one.number || !other.number || *one.number == *other.number;
             });
}

}  // namespace

ExportedModuleImpl::ExportedModuleImpl(const ExportedArchive& archive, bool leaves_parameters_empty)
    : torch::nn::Module("ExportedModule") {
  auto [code, tensors] = exported::code_of(archive, leaves_parameters_empty);
  if (leaves_parameters_empty)
    stored_ = std::make_shared<const exported::StoredParameters>(archive);
  code_ = std::make_shared<const Code>(std::move(code));
  tensors_ = std::move(tensors);
  register_tensors();
  register_modules();
}

ExportedModuleImpl::ExportedModuleImpl(
    std::shared_ptr<const Code> code, std::vector<torch::Tensor> tensors)
    : torch::nn::Module("ExportedModule"), code_(std::move(code)), tensors_(std::move(tensors)) {
  register_tensors();
  register_modules();
}

// Makes the modules on the way that are not there yet.
torch::nn::Module& ExportedModuleImpl::module_at(const std::string& path) {
  torch::nn::Module* module = this;
  if (path.empty()) return *module;
  for (const std::string& name : split(path, '.')) {
    const auto children = module->named_children();
    const auto* const child = children.find(name);
    module = child != nullptr
                 ? child->get()
                 : module->register_module(name, std::make_shared<torch::nn::Module>(name)).get();
  }
  return *module;
}

void ExportedModuleImpl::register_tensors() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const HeldTensor& held = code_->held[i];
    const std::size_t dot = held.name.rfind('.');
    const bool is_nested = dot != std::string::npos;
    const std::string name = is_nested ? held.name.substr(dot + 1) : held.name;
    const std::string path = is_nested ? held.name.substr(0, dot) : "";
    if (held.kind == HeldTensor::Kind::kParameter)
      module_at(path).register_parameter(name, tensors_[i], tensors_[i].requires_grad());
    if (held.kind == HeldTensor::Kind::kBuffer) module_at(path).register_buffer(name, tensors_[i]);
  }
}

// Those without tensors too: a dropout has a mode.
void ExportedModuleImpl::register_modules() {
  for (const std::string& path : code_->modules) modules_.push_back(&module_at(path));
}

at::Device ExportedModuleImpl::device(const std::vector<torch::Tensor>& inputs) const {
  if (!tensors_.empty()) return tensors_.front().device();
  return inputs.empty() ? at::Device(at::kCPU) : inputs.front().device();
}

bool ExportedModuleImpl::changes_input(std::size_t index) const {
  return std::ranges::any_of(
      code_->program_for(is_training()).inputs, [&](const Program::Input& input) {
        return input.kind == Program::Input::Kind::kUser && input.index == index &&
               input.is_changed;
      });
}

void ExportedModuleImpl::check_inputs(const std::vector<torch::Tensor>& inputs) const {
  code_->program_for(is_training()).forms.check(inputs);
}

void ExportedModuleImpl::check_evaluation() const {
  check(code_->without_evaluation.empty(), code_->file,
      ": the program was exported in training and draws random numbers by itself, so it has no "
      "evaluation: ",
      code_->without_evaluation,
      "; export both by package_pt2(FILE, exported_programs={\"train\": ..., \"eval\": ...})");
}

void ExportedModuleImpl::lay_out_kernels() {
  if (std::ranges::any_of(code_->programs, &Program::needs_python_layout)) return;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    torch::Tensor& weight = tensors_[i];
    if (!code_->held[i].is_kernel || weight.dim() != 4 || weight.scalar_type() != torch::kFloat)
      continue;
    constexpr auto kLast = at::MemoryFormat::ChannelsLast;
    const bool is_empty = stored_ && !weight.is_contiguous(kLast);
    weight.set_data(
        is_empty ? at::empty_like(weight.detach(), {}, kLast) : weight.contiguous(kLast));
  }
}

void ExportedModuleImpl::check_outputs(const std::string& loss) const {
  const Program &training = code_->program_for(true), &evaluation = code_->program_for(false);
  const auto learned = numbers_of(training), measured = numbers_of(evaluation);
  const auto has_loss = [&](const auto& names) { return std::ranges::count(names, loss) > 0; };
  if (has_loss(learned) || has_loss(measured)) {
    check(std::ranges::is_permutation(learned, measured), code_->file,
        ": the program of training returns the numbers ",
        learned.empty() ? "none" : joined(learned), ", but that of evaluation ",
        measured.empty() ? "none" : joined(measured), "; return the same in both modes");
    return;
  }
  const auto &one = training.first_output, &other = evaluation.first_output;
  const bool fit = one && other ? are_alike(*one, *other) : !one && !other;
  const auto text = [](const auto& form) { return form ? exported::text_of(*form) : "no tensor"; };
  check(fit, code_->file, ": the first output is ", text(one), " in training, but ", text(other),
      " in evaluation; return the same in both modes");
}

void ExportedModuleImpl::check_state() const {
  check(code_->lost_state.empty(), code_->file, ": forward changes ", printable(code_->lost_state),
      ", which no snapshot would have, as it is not in Python's state_dict(); make it a buffer by "
      "register_buffer(..., persistent=True)");
  check(code_->decomposed_norm.empty(), code_->file,
      ": a batch norm has been decomposed, so that ranks and stages cannot join their statistics: ",
      code_->decomposed_norm,
      "; save what torch.export.export() returns, without run_decompositions()");
}

NamedTensors ExportedModuleImpl::forward(std::vector<torch::Tensor> inputs) {
  if (!is_training()) check_evaluation();
  const Program& program = code_->program_for(is_training());
  program.forms.check(inputs);
  const auto& parts = program.graph.parts();
  exported::ProgramFrame frame(program, tensors_, {device(inputs), modules_});
  frame.take_inputs(inputs);
  for (std::size_t i = 0; i < program.inputs.size(); ++i) frame.take_held(i);
  frame.run(0, parts.steps.size());

  NamedTensors results("Output");
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    const Program::Output& output = program.outputs[i];
    if (output.kind == Program::Output::Kind::kResult)
      results.insert(output.name, frame.value(parts.outputs[i].place).toTensor());
    else
      frame.store(i);
  }
  return results;
}

Layers ExportedModuleImpl::layers(
    const std::vector<std::string>& outputs, const exported::LastLayer& last) const {
  const auto segments =
      std::make_shared<const exported::Segments>(exported::segments_of(*code_, outputs));
  Layers layers;
  for (std::size_t i = 0; i < segments->names.size(); ++i)
    layers.insert(
        segments->names[i], exported::make_layer({code_, segments, i, last}, tensors_, *this));
  return layers;
}

torch::Tensor ExportedModuleImpl::first_output(std::vector<torch::Tensor> inputs) {
  const NamedTensors outputs = forward(std::move(inputs));
  check(!outputs.is_empty(), code_->file, ": the program returns no tensor");
  return outputs.front().value();
}

const std::vector<std::string>& ExportedModuleImpl::input_names() const {
  return code_->programs.front().forms.names();
}

const std::optional<ExportedTensor>& ExportedModuleImpl::first_output_form() const {
  return code_->programs.front().first_output;
}

std::vector<std::string> ExportedModuleImpl::number_outputs() const {
  return numbers_of(code_->programs.front());
}

std::optional<std::string> ExportedModuleImpl::input_of_fixed_batch() const {
  for (const Program& program : code_->programs) {
    if (auto name = program.forms.input_of_fixed_batch()) return name;
  }
  return std::nullopt;
}

void ExportedModuleImpl::convert_unregistered(
    std::optional<torch::Device> device, std::optional<torch::Dtype> dtype, bool non_blocking) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const HeldTensor::Kind kind = code_->held[i].kind;
    torch::Tensor& tensor = tensors_[i];
    const bool is_buffer = kind == HeldTensor::Kind::kUnsavedBuffer;
    if (!is_buffer && kind != HeldTensor::Kind::kConstant) continue;
    if (device) tensor = tensor.to(*device, non_blocking);
    // Python makes constants anew in each forward.
    if (dtype && is_buffer && tensor.is_floating_point()) tensor = tensor.to(*dtype, non_blocking);
  }
}

void ExportedModuleImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  convert_unregistered(device, dtype, non_blocking);
}

void ExportedModuleImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  convert_unregistered(std::nullopt, dtype, non_blocking);
}

void ExportedModuleImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  convert_unregistered(device, std::nullopt, non_blocking);
}

std::shared_ptr<torch::nn::Module> ExportedModuleImpl::clone(
    const std::optional<at::Device>& device) const {
  const at::NoGradGuard no_gradients;
  std::vector<torch::Tensor> copies;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor& tensor = tensors_[i];
    const std::size_t first = code_->held[i].first;
    copies.push_back(first != i ? copies[first]
                                : tensor.detach().to(device.value_or(tensor.device()),
                                      tensor.scalar_type(), false, /*copy=*/true));
    copies.back().set_requires_grad(tensor.requires_grad());
  }
  std::shared_ptr<ExportedModuleImpl> copy(new ExportedModuleImpl(code_, std::move(copies)));
  const auto from = modules(), to = copy->modules();
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
  return copy;
}

ExportedModule load_exported(const std::filesystem::path& path, bool leaves_parameters_empty) {
  return ExportedModule(
      std::make_shared<ExportedModuleImpl>(read_exported(path), leaves_parameters_empty));
}

}  // namespace lockstep::nn
