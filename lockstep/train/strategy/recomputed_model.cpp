#include "lockstep/train/strategy/recomputed_model.h"

#include <algorithm>
#include <fnmatch.h>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/grad_mode.h>
#include <torch/nn/modules/container/any_value.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/pipeline/checkpoint.h"

namespace lockstep {

bool is_computed_again(const std::string& layer, const std::string& pattern) {
  return pattern.empty() || ::fnmatch(pattern.c_str(), layer.c_str(), 0) == 0;
}

RecomputedModel::RecomputedModel(nn::Model net, const std::string& name, const std::string& pattern)
    : AroundNet(std::move(net)),
      net_name_(name),
      pattern_(pattern),
      layers_(this->net()->layers()) {
  check(layers_.size() > 1,
      "train: --checkpoint computes the layers of a model again, one by one, and ", name,
      " has only one");
  const std::vector<std::string> names = layers_.keys();
  const auto is_meant = [&](const std::string& layer) { return is_computed_again(layer, pattern); };
  check(std::ranges::any_of(names, is_meant), "train: --checkpoint ", pattern,
      " is neither never, except-last or always, nor matches a layer of ", name, ": ",
      joined(names));
  check_can_be_computed_again(layers_);
}

torch::Tensor RecomputedModel::forward_all(std::vector<torch::Tensor> inputs) {
  if (!torch::GradMode::is_enabled()) return net()->MultiInputModule::forward(std::move(inputs));
  torch::nn::AnyValue value = ChainInput(std::move(inputs)).value();
  for (auto& layer : layers_)
    value = is_computed_again(layer.key(), pattern_) ? checkpoint(layer.value(), std::move(value))
                                                     : layer.value().any_forward(std::move(value));
  return value.get<torch::Tensor>();
}

std::shared_ptr<torch::nn::Module> RecomputedModel::around(nn::Model net) const {
  return std::make_shared<RecomputedModel>(std::move(net), net_name_, pattern_);
}

}  // namespace lockstep
