#include "lockstep/train/strategy/turns.h"

#include <algorithm>
#include <map>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

bool is_in(const std::string& parameter, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return parameter == module || parameter.starts_with(module + ".");
  });
}

// Of those that are trained; a tied weight belongs to a turn by any of its names.
std::vector<torch::Tensor> parameters_in(const torch::nn::Module& model, const nn::TaskTurn& turn) {
  std::vector<torch::Tensor> found;
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad() && is_in(item.key(), turn.options.modules))
      found.push_back(item.value());
  check(!found.empty(), "train: the turn ", turn.name, " of --task steps the parameters of ",
      joined(turn.options.modules), ", and the model trains none there");
  return found;
}

void check_shares(
    const nn::TaskModelImpl& model, const std::vector<std::vector<torch::Tensor>>& turns) {
  std::map<const void*, std::size_t> turn_of;
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    for (const torch::Tensor& parameter : turns[turn]) {
      const auto [first, is_new] = turn_of.emplace(parameter.unsafeGetTensorImpl(), turn);
      check(first->second == turn, "train: the turns ", model.turns()[first->second].name, " and ",
          model.turns()[turn].name, " of --task step the same parameters; each belongs to one");
    }
  }
  for (const auto& item : model.named_parameters())
    check(!item.value().requires_grad() || turn_of.contains(item.value().unsafeGetTensorImpl()),
        "train: no turn of --task steps ", item.key(), "; name its module in one, or --freeze it");
}

}  // namespace

Turns::Turns(const std::shared_ptr<torch::nn::Module>& model)
    : model_(std::dynamic_pointer_cast<nn::TaskModelImpl>(model)) {
  if (!model_ || model_->turns().front().options.modules.empty()) return;
  for (const nn::TaskTurn& turn : model_->turns())
    parameters_.push_back(parameters_in(*model_, turn));
  check_shares(*model_, parameters_);
}

void Turns::begin(std::size_t turn) const {
  if (parameters_.empty()) return;
  model_->begin_turn(turn);
  for (std::size_t other = 0; other < parameters_.size(); ++other)
    for (const torch::Tensor& parameter : parameters_[other])
      parameter.set_requires_grad(other == turn);
}

}  // namespace lockstep
