#include "lockstep/nn/exported/exported_model.h"

#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::nn {

ExportedModelImpl::ExportedModelImpl(const std::string& file, std::int64_t classes)
    : ExportedModelImpl(file, classes, load_exported(file)) {
  check_form();
}

// Shares the tensors and the modules of the net.
ExportedModelImpl::ExportedModelImpl(std::string file, std::int64_t classes, ExportedModule net)
    : file_(std::move(file)), classes_(classes), net_(std::move(net)) {
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
  const auto form = net_->first_output_form();
  const bool are_scores =
      form && form->shape.size() == 2 && form->shape[1].number.value_or(classes_) == classes_;
  check(are_scores, file_, ": its first output must be scores of ", classes_, " classes, [N, ",
      classes_, "], and is ", net_->first_output_text(),
      "; export it with a head of that size, or give --num-classes");
}

torch::Tensor ExportedModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  torch::Tensor scores = net_->first_output(std::move(inputs));
  check(scores.dim() == 2 && scores.size(1) == classes_, file_, ": must return scores of [N, ",
      classes_, "], not ", scores.sizes());
  return scores;
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
  std::shared_ptr<ExportedModelImpl> copy(new ExportedModelImpl(file_, classes_, std::move(net)));
  const auto from = modules(), to = copy->modules();
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
  return copy;
}

}  // namespace lockstep::nn
