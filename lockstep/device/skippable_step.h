#pragma once

#include <cstdint>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace lockstep {

/// An optimizer whose step a device can leave out by what it finds there, so that no host waits.
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
