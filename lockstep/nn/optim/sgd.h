#pragma once

#include <torch/optim/sgd.h>

namespace lockstep::nn {

/// Is torch::optim::SGD, one fused kernel for all parameters: same options, state, files and
/// values.
///
/// Parameters without gradient are skipped and get no state. A parameter that the kernel cannot
/// take (sparse gradient, complex, gaps in memory) makes the whole step go through LibTorch's own.
///
///     SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
class SGD final : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;

  /// Updates every parameter that has a gradient; gives the closure's loss, undefined without one.
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace lockstep::nn
