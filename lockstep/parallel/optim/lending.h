#pragma once

// The part that the sources of ShardedOptimizer share.

#include <utility>

#include "lockstep/parallel/optim/sharded_optimizer.h"

namespace lockstep {

/// Lends parameters, with the options of their groups, and a state to an optimizer while it lives.
class ShardedOptimizer::Lending {
 public:
  Lending(
      torch::optim::Optimizer& borrower,
      const std::vector<torch::optim::OptimizerParamGroup>& groups, const Parameters& parameters,
      States& state)
      : borrower_(borrower), state_(state) {
    auto& lent = borrower_.param_groups();
    lent.clear();
    for (std::size_t group = 0; group < groups.size(); ++group) {
      lent.emplace_back(parameters[group], groups[group].options().clone());
    }
    std::swap(borrower_.state(), state_);
  }

  ~Lending() {
    std::swap(borrower_.state(), state_);
    borrower_.param_groups().clear();
  }

  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

 private:
  torch::optim::Optimizer& borrower_;
  States& state_;
};

}  // namespace lockstep
