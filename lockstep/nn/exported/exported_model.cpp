#include "lockstep/nn/exported/exported_model.h"

#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {

namespace {

constexpr const char* kLoss = "loss";

// Of a net that computes its loss itself.
std::optional<std::vector<std::string>> numbers_beside_loss(std::vector<std::string> numbers) {
  if (std::erase(numbers, kLoss) == 0) return std::nullopt;
  return numbers;
}

}  // namespace

ExportedModelImpl::ExportedModelImpl(const std::string& file)
    : ExportedModelImpl(file, load_exported(file)) {
  check_form();
  net_->lay_out_kernels();
}

// Shares the tensors and the modules of the net.
ExportedModelImpl::ExportedModelImpl(std::string file, ExportedModule net)
    : file_(std::move(file)),
      net_(std::move(net)),
      numbers_(numbers_beside_loss(net_->number_outputs())) {
  for (const auto& item : net_->named_parameters(false))
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : net_->named_buffers(false)) register_buffer(item.key(), item.value());
  for (const auto& item : net_->named_children()) register_module(item.key(), item.value());
}

void ExportedModelImpl::check_form() const {
  net_->check_evaluation();
  net_->check_norms();
  const auto fixed = net_->input_of_fixed_batch();
  check(!fixed, file_, ": the first size of its input ", fixed.value_or(""),
      " is fixed, but batches vary; export it with dynamic_shapes={\"", fixed.value_or(""),
      "\": {0: torch.export.Dim(\"batch\")}}");
  check(net_->first_output_form().has_value(), file_, ": the program returns no tensor");
}

torch::Tensor ExportedModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  return numbers_ ? row_of_numbers(std::move(inputs)) : net_->first_output(std::move(inputs));
}

// [1, samples, loss and numbers]; numbers of other types than the loss's are of it, too.
torch::Tensor ExportedModelImpl::row_of_numbers(std::vector<torch::Tensor> inputs) {
  check(!inputs.empty(), file_, ": takes tensors");
  const std::int64_t samples = inputs.front().size(0);
  const NamedTensors outputs = net_->forward(std::move(inputs));
  const torch::Tensor& given = outputs[kLoss];
  // Of 16 bits, a row could not count its samples.
  const torch::Tensor loss =
      given.scalar_type() == torch::kDouble ? given : given.to(torch::kFloat);
  std::vector<torch::Tensor> row = {
      at::full({}, samples, loss.options().requires_grad(false)), loss};
  for (const std::string& name : *numbers_)
    row.push_back(outputs[name].detach().to(loss.options()));
  return at::stack(row).unsqueeze(0);
}

Layers ExportedModelImpl::layers() const {
  Layers whole;
  whole.insert("net", layer_of([net = net_](torch::Tensor images) mutable {
    return net->first_output({std::move(images)});
  }));
  return whole;
}

void ExportedModelImpl::train(bool on) {
  ModelImpl::train(on);
  net_->train(on);
}

void ExportedModelImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  net_->to(device, dtype, non_blocking);
}

void ExportedModelImpl::to(torch::Dtype dtype, bool non_blocking) { net_->to(dtype, non_blocking); }

void ExportedModelImpl::to(torch::Device device, bool non_blocking) {
  net_->to(device, non_blocking);
}

std::shared_ptr<torch::nn::Module> ExportedModelImpl::clone(
    const std::optional<at::Device>& device) const {
  ExportedModule net(std::dynamic_pointer_cast<ExportedModuleImpl>(net_->clone(device)));
  std::shared_ptr<ExportedModelImpl> copy(new ExportedModelImpl(file_, std::move(net)));
  const auto from = modules(), to = copy->modules();
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
  return copy;
}

}  // namespace lockstep::nn
