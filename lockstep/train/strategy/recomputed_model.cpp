#include "lockstep/train/strategy/recomputed_model.h"

#include <utility>

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/nn/modules/container/any_value.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/checkpoint.h"

namespace lockstep {

RecomputedModel::RecomputedModel(nn::Model net, const std::string& name)
    : AroundNet(std::move(net)), net_name_(name), layers_(this->net()->layers()) {
  check(layers_.size() > 1,
      "train: --checkpoint computes the layers of a model again, one by one, and ", name,
      " has only one");
  check_can_be_computed_again(layers_);
}

torch::Tensor RecomputedModel::forward_all(std::vector<torch::Tensor> inputs) {
  if (!torch::GradMode::is_enabled()) return net()->MultiInputModule::forward(std::move(inputs));
  torch::nn::AnyValue value = ChainInput(std::move(inputs)).value();
  for (const auto& layer : layers_) value = checkpoint(layer.value(), std::move(value));
  return value.get<torch::Tensor>();
}

std::shared_ptr<torch::nn::Module> RecomputedModel::around(nn::Model net) const {
  return std::make_shared<RecomputedModel>(std::move(net), net_name_);
}

}  // namespace lockstep
