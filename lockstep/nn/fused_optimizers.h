#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "lockstep/device/parameters.h"

namespace lockstep::nn {

/// An optimizer of LibTorch with one fused kernel for all parameters: same options, state, files,
/// values.
///
/// Parameters without gradient are skipped and get no state. One that a group lists twice, as
/// module->parameters() does with tied weights, is updated once. A parameter that the kernel cannot
/// take (sparse gradient, complex, gaps in memory, moments of another type) makes the whole step
/// LibTorch's own. A device can leave the kernel's step out, as GradScaler asks, but for SGD's
/// dampening; then the states' step counts are right once settle_steps() was called.
///
/// step() throws InvalidArgument if a parameter is in two groups, or if a gradient is sparse and
/// the optimizer does not take it: Adam, AdamW and weight decay do not.
template <typename Base>
class FusedOptimizer final : public Base, public SkippableStep {
 public:
  using Base::Base;

  /// Returns the closure's loss, undefined without a closure.
  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  bool can_skip() const override;
  void step_unless(const torch::Tensor& skip) override;
};

extern template class FusedOptimizer<torch::optim::SGD>;
extern template class FusedOptimizer<torch::optim::Adam>;
extern template class FusedOptimizer<torch::optim::AdamW>;

/// `SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));`
using SGD = FusedOptimizer<torch::optim::SGD>;

/// `Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3).eps(1e-7));`
using Adam = FusedOptimizer<torch::optim::Adam>;

/// Adam with decoupled weight decay.
using AdamW = FusedOptimizer<torch::optim::AdamW>;

}  // namespace lockstep::nn
