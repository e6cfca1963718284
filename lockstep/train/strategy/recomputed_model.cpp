#include "lockstep/train/strategy/recomputed_model.h"

#include <utility>

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/nn/modules/container/any_value.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/checkpoint.h"

namespace lockstep {

RecomputedModel::RecomputedModel(nn::Model net, const std::string& name)
    : net_(std::move(net)), net_name_(name), layers_(net_->layers()) {
  check(layers_.size() > 1,
      "train: --checkpoint computes the layers of a model again, one by one, and ", name,
      " has only one");
  for (const auto& item : net_->named_parameters(false))
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : net_->named_buffers(false)) register_buffer(item.key(), item.value());
  for (const auto& item : net_->named_children()) register_module(item.key(), item.value());
}

torch::Tensor RecomputedModel::forward_all(std::vector<torch::Tensor> inputs) {
  if (!torch::GradMode::is_enabled()) return net_->MultiInputModule::forward(std::move(inputs));
  torch::nn::AnyValue value = ChainInput(std::move(inputs)).value();
  for (const auto& layer : layers_) value = checkpoint(layer.value(), std::move(value));
  return value.get<torch::Tensor>();
}

void RecomputedModel::train(bool on) {
  MultiInputModule::train(on);
  net_->train(on);
}

std::shared_ptr<torch::nn::Module> RecomputedModel::clone(
    const std::optional<torch::Device>& device) const {
  auto net = std::dynamic_pointer_cast<nn::ModelImpl>(net_->clone(device));
  auto copy = std::make_shared<RecomputedModel>(nn::Model(std::move(net)), net_name_);
  const auto from = modules(), to = copy->modules();
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
  return copy;
}

}  // namespace lockstep
