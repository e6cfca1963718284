#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace lockstep::nn {

/// Tells whether LibTorch's fused optimizer kernels can take every parameter that has a gradient:
/// floating point, without gaps in memory, with a dense gradient of its own type and device.
bool are_fusable(const std::vector<torch::optim::OptimizerParamGroup>& groups);

/// Runs the closure with gradients on, as optimizers do; undefined without one.
at::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure);

/// Collects the arguments of one kernel call; the lists run in parallel.
struct KernelArguments {
  std::vector<at::Tensor> parameters, gradients, moments, second_moments, largest_moments, steps;
};

/// Gives the calls' arguments in turn: a call takes parameters of one device and one type only.
class KernelCalls {
 public:
  /// Appends the parameter and its gradient, in the parameter's memory order, to the call that
  /// fits.
  KernelArguments& add(const at::Tensor& parameter);

  std::vector<KernelArguments>::iterator begin() { return calls_.begin(); }
  std::vector<KernelArguments>::iterator end() { return calls_.end(); }

 private:
  std::vector<KernelArguments> calls_;
};

}  // namespace lockstep::nn
