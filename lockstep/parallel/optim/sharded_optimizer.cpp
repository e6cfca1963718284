#include "lockstep/parallel/optim/sharded_optimizer.h"

#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/replicas.h"
#include "lockstep/parallel/optim/lending.h"
#include "lockstep/parallel/optim/owners.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

std::unique_ptr<torch::optim::OptimizerOptions> defaults_of(const Optimizer* optimizer) {
  check(optimizer != nullptr, "ShardedOptimizer: there is no optimizer");
  check(
      dynamic_cast<const torch::optim::LBFGS*>(optimizer) == nullptr,
      "ShardedOptimizer: LBFGS computes one step from all parameters together, which no rank has "
      "alone; use it unsharded on every rank");
  return optimizer->defaults().clone();
}

template <typename Body>
void for_each_parameter(const std::vector<OptimizerParamGroup>& groups, Body body) {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (std::size_t index = 0; index < groups[group].params().size(); ++index) {
      body(group, index, groups[group].params()[index]);
    }
  }
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(std::unique_ptr<Optimizer> optimizer, ProcessGroup group)
    : Optimizer(std::vector<OptimizerParamGroup>(), defaults_of(optimizer.get())),
      optimizer_(std::move(optimizer)),
      group_(std::move(group)) {
  std::swap(param_groups_, optimizer_->param_groups());
  std::swap(state_, optimizer_->state());
  check_parameters();
  forget_foreign_state();
}

torch::Tensor ShardedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_gradients(true);
    loss = closure();
  }
  check_parameters();
  forget_foreign_state();
  const std::vector<Parameters> shares = this->shares();
  {
    const auto own = static_cast<std::size_t>(group_.rank());
    const Lending lending(*optimizer_, param_groups_, shares[own], state_);
    optimizer_->step();
  }
  for (int owner = 0; owner < group_.size(); ++owner) {
    std::vector<torch::Tensor> updated;
    for (const auto& of_group : shares[static_cast<std::size_t>(owner)]) {
      updated.insert(updated.end(), of_group.begin(), of_group.end());
    }
    broadcast_all(updated, owner, group_);
  }
  return loss;
}

std::vector<std::vector<int>> ShardedOptimizer::owners() const {
  std::vector<std::vector<std::int64_t>> elements(param_groups_.size());
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t /*index*/, const torch::Tensor& tensor) {
        elements[group].push_back(tensor.numel());
      });
  return balanced_owners(elements, group_.size());
}

std::vector<ShardedOptimizer::Parameters> ShardedOptimizer::shares() const {
  const auto owners = this->owners();
  std::vector<Parameters> shares(
      static_cast<std::size_t>(group_.size()), Parameters(param_groups_.size()));
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t index, const torch::Tensor& tensor) {
        shares[static_cast<std::size_t>(owners[group][index])][group].push_back(tensor);
      });
  return shares;
}

ShardedOptimizer::Parameters ShardedOptimizer::all_parameters() const {
  Parameters all;
  for (const auto& group : param_groups_) all.push_back(group.params());
  return all;
}

std::size_t ShardedOptimizer::number_of_parameters() const {
  std::size_t number = 0;
  for (const auto& group : param_groups_) number += group.params().size();
  return number;
}

// Again whenever groups were added.
void ShardedOptimizer::check_parameters() {
  if (number_of_parameters() == checked_parameters_) return;
  NamedTensors named;
  for_each_parameter(
      param_groups_, [&](std::size_t group, std::size_t index, const torch::Tensor& tensor) {
        named.emplace_back(concat("group ", group, " parameter ", index), tensor);
      });
  check_same_on_all_ranks("ShardedOptimizer: the parameters", named, group_);
  checked_parameters_ = number_of_parameters();
}

void ShardedOptimizer::forget_foreign_state() {
  std::unordered_set<void*> own;
  const Parameters share = shares()[static_cast<std::size_t>(group_.rank())];
  for (const auto& of_group : share) {
    for (const torch::Tensor& tensor : of_group) own.insert(tensor.unsafeGetTensorImpl());
  }
  States kept;
  for (auto& [key, state] : state_) {
    if (own.contains(key)) kept[key] = std::move(state);
  }
  std::swap(state_, kept);
}

}  // namespace lockstep
