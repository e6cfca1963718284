#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "lockstep/device/skippable_step.h"

namespace lockstep::nn {

/// torch::optim::SGD with one fused kernel for all parameters: same options, state, files, values.
///
/// Parameters without gradient are skipped and get no state. A parameter that the kernel cannot
/// take (sparse gradient, complex, gaps in memory) makes the whole step LibTorch's own. A device
/// can leave the kernel's step out, as GradScaler asks, but for dampening.
///
///     SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
class SGD final : public torch::optim::SGD, public SkippableStep {
 public:
  using torch::optim::SGD::SGD;

  /// Returns the closure's loss, undefined without a closure.
  torch::Tensor step(LossClosure closure = nullptr) override;

  bool can_skip() const override;
  void step_unless(const torch::Tensor& skip) override;

 private:
  void run_kernel(const torch::Tensor& skip);
};

/// torch::optim::Adam with one fused kernel, in the same manner as SGD.
///
/// After step_unless() the states' step counts are right once settle_steps() was called.
///
///     Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3).eps(1e-7));
class Adam final : public torch::optim::Adam, public SkippableStep {
 public:
  using torch::optim::Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  bool can_skip() const override;
  void step_unless(const torch::Tensor& skip) override;
};

/// torch::optim::AdamW (decoupled weight decay) in the same manner as Adam.
class AdamW final : public torch::optim::AdamW, public SkippableStep {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  bool can_skip() const override;
  void step_unless(const torch::Tensor& skip) override;
};

}  // namespace lockstep::nn
