#pragma once

#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {

/// The key of OptimizerState::options in the metadata of an optimizer's file.
inline constexpr const char* kOptimizerOptions = "optimizer";

/// The state from which an optimizer continues as before.
struct OptimizerState {
  /// The tensors of each parameter's state, `PARAMETER/exp_avg`; `PARAMETER/step` is an int64
  /// scalar.
  nn::NamedTensors tensors{"Tensor"};
  /// JSON: the kind, and of each param group the names of its parameters and all options, the
  /// learning rate with them.
  std::string options;
};

/// Returns the state of an optimizer by the names that its parameters have among `named`, which
/// nn::named_state() gives. Nothing is copied but counts of steps; a ShardedOptimizer gives this
/// rank's share.
///
/// Knows SGD, Adam, AdamW, Adagrad and RMSprop; another one, or a parameter without name, is an
/// InvalidArgument.
OptimizerState optimizer_state(
    const torch::optim::Optimizer& optimizer, const nn::NamedTensors& named);

/// Restores the state and all options of the optimizer; a ShardedOptimizer takes what this rank
/// owns, whoever wrote it. A parameter that had no state yet has none afterwards.
///
/// Nothing is left out: what is missing, unexpected or of another type or shape is a DataError that
/// lists the first ten, and the optimizer is as it was. Not a collective.
void restore_optimizer(torch::optim::Optimizer& optimizer, const nn::NamedTensors& named,
    const OptimizerState& state, Others others = Others::kRefused);

/// Joins what several owners wrote.
OptimizerState joined(const std::vector<OptimizerState>& parts);

}  // namespace lockstep
