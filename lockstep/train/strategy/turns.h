#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/nn/models/task_model.h"

namespace lockstep {

/// The turns of an optimizer step: the losses of a task, each of which steps parameters of its own
/// with what the ones before it have changed. Most tasks have one turn, of all parameters.
///
/// Note [Turns]
/// In a turn its parameters alone want gradients, so backward leaves the others' undefined, and
/// optimizers pass those over: one optimizer keeps a state for each parameter, and is as many as
/// there are turns. Snapshots need to know nothing of it. With DistributedDataParallel each turn
/// has a wrapper, made while its parameters wanted gradients, which averages these.
class Turns {
 public:
  /// Takes a model in the state in which training begins: parameters that are frozen belong to no
  /// turn. Throws InvalidArgument that names what is amiss: a turn without parameters, a parameter
  /// of two turns, or of none.
  explicit Turns(const std::shared_ptr<torch::nn::Module>& model);

  std::size_t size() const { return std::max<std::size_t>(1, parameters_.size()); }

  /// Lets the model compute the loss of a turn.
  void begin(std::size_t turn) const;

  /// Returns the factor of a turn's learning rate.
  double lr(std::size_t turn) const {
    return parameters_.empty() ? 1 : model_->turns()[turn].options.lr;
  }

 private:
  std::shared_ptr<nn::TaskModelImpl> model_;            // none: there is one turn
  std::vector<std::vector<torch::Tensor>> parameters_;  // of each turn
};

}  // namespace lockstep
