#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace lockstep {

/// Returns each tensor once, in the order of their first places.
///
/// Parameters are a set, their names a list: LibTorch's `parameters()` lists tied weights once for
/// each of their names.
std::vector<torch::Tensor> distinct(const std::vector<torch::Tensor>& tensors);

/// Returns every parameter of a module once, as Python's `parameters()` does. LibTorch's optimizers
/// update a parameter that is listed twice twice; ours do not.
///
///     torch::optim::RMSprop optimizer(lockstep::parameters_of(*net), 0.01);
std::vector<torch::Tensor> parameters_of(const torch::nn::Module& module);

/// Leaves every parameter in the list of its group once. Throws InvalidArgument if one is in two
/// groups, as Python does.
void list_once(std::vector<torch::optim::OptimizerParamGroup>& groups);

/// An optimizer whose step a device can skip by a flag in its memory: the host need not wait.
class SkippableStep {
 public:
  virtual ~SkippableStep() = default;

  /// Says whether the device can do so for the parameters, gradients and options as they are.
  virtual bool can_skip() const = 0;

  /// Makes a step where `skip`, a float32 scalar, is 0, and none where it is 1: parameters and
  /// state stay as they are. Waits for no device.
  virtual void step_unless(const torch::Tensor& skip) = 0;
};

/// A parameter's state that counts its steps on the device, which alone knows how many it made.
///
/// Until settle_steps(), the count of the optimizer's own state includes those that were left out.
class StepsOnDevice {
 public:
  virtual ~StepsOnDevice() = default;

  /// Takes the count into the optimizer's own state.
  virtual void set_steps(std::int64_t count) = 0;

  torch::Tensor made;  ///< a float32 scalar; undefined while the optimizer's own count is right
};

/// Brings the counts of steps in an optimizer's state up to date, once somebody reads them. Waits
/// for the devices, unless no step was made by step_unless() since the last time.
void settle_steps(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
