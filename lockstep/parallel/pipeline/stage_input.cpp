#include "lockstep/parallel/pipeline/stage_input.h"

#include <utility>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

// Returns a tensor on the same memory that is not a view for autograd, though changes in place are
// counted together.
struct Enter : torch::autograd::Function<Enter> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& leaf) {
    torch::Tensor seen = leaf.variable_data();
    torch::autograd::impl::set_version_counter(seen, torch::autograd::impl::version_counter(leaf));
    return seen;
  }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list gradients) {
    return gradients;
  }
};

}  // namespace

StageInput::StageInput(const std::vector<torch::Tensor>& tensors, torch::Device device) {
  for (const torch::Tensor& tensor : tensors) {
    torch::Tensor leaf = tensor.detach().to(device);
    leaf.requires_grad_(tensor.requires_grad() && torch::GradMode::is_enabled());
    seen.push_back(leaf.requires_grad() ? Enter::apply(leaf) : leaf);
    leaves.push_back(std::move(leaf));
  }
}

std::vector<torch::Tensor> StageInput::wanting() const {
  std::vector<torch::Tensor> wanting;
  for (const torch::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanting.push_back(leaf);
  }
  return wanting;
}

std::vector<torch::Tensor> StageInput::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

Unchanged::Unchanged(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const torch::Tensor& tensor : tensors_) versions_.push_back(tensor._version());
}

void Unchanged::verify() const {
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    if (tensors_[index]._version() == versions_[index]) continue;
    throw Error(concat("pipeline: input ", index, " of a checkpointed stage, ",
        tensors_[index].sizes(),
        ", was changed in place; its activations cannot be computed again. Let the stage's first "
        "layer work out of place, or set checkpoint to never"));
  }
}

namespace {

bool is_of_norm(const std::string& buffer) {
  return buffer.ends_with("num_batches_tracked") || buffer.ends_with("running_mean") ||
         buffer.ends_with("running_var");
}

}  // namespace

OwnBuffers::OwnBuffers(const std::vector<const torch::nn::Module*>& modules) {
  for (const torch::nn::Module* const module : modules) {
    for (const auto& buffer : module->named_buffers()) {
      if (is_of_norm(buffer.key()) || !buffer.value().defined()) continue;
      names_.push_back(buffer.key());
      buffers_.push_back(buffer.value());
      versions_.push_back(buffer.value()._version());
    }
  }
}

void OwnBuffers::check_unchanged() const {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    check(buffers_[i]._version() == versions_[i], "checkpoint: forward changes the buffer ",
        names_[i], ", so it cannot be computed a second time; keep the activations instead");
}

BatchCounters::BatchCounters(const std::vector<const torch::nn::Module*>& modules) {
  for (const torch::nn::Module* const module : modules) {
    for (const auto& buffer : module->named_buffers())
      if (buffer.key().ends_with("num_batches_tracked")) counters_.push_back(buffer.value());
  }
  save();
}

void BatchCounters::save() {
  saved_.clear();
  for (const torch::Tensor& counter : counters_) saved_.push_back(counter.clone());
}

void BatchCounters::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t index = 0; index < counters_.size(); ++index)
    counters_[index].copy_(saved_[index]);
}

}  // namespace lockstep
