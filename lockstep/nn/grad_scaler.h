#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/nn/grad_scaler_state.h"

namespace lockstep::nn {

/// The findings of unscale_gradients().
struct UnscaledGradients {
  bool any = false;    ///< there was a gradient
  bool finite = true;  ///< no element was infinite or NaN
};

/// Multiplies the gradients of the parameters by `factor`, in place, and looks for Inf and NaN.
///
/// Takes gradients of any layout of strides, type and device, and sparse ones; finite elements are
/// multiplied whatever the others are. A sparse float16 gradient is replaced by its coalesced form,
/// since adding up its duplicates may overflow. A parameter that is listed twice counts once, one
/// without gradient not at all. Waits for the device.
UnscaledGradients unscale_gradients(const std::vector<torch::Tensor>& parameters, double factor);

/// Does so without waiting, where `factor` and `found`, float32 scalars, are on the gradients'
/// device or on another one that is no host; `found` becomes 1 where an element was infinite or
/// NaN. Returns whether there was a gradient.
bool unscale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor,
    const torch::Tensor& found);

/// The settings of a GradScaler; PyTorch's defaults.
struct GradScalerOptions {
  /// The scale of the first step.
  TORCH_ARG(double, init_scale) = 65536;
  /// What the scale is multiplied by after growth_interval steps without overflow; above 1.
  TORCH_ARG(double, growth_factor) = 2;
  /// What the scale is multiplied by after an overflow; between 0 and 1.
  TORCH_ARG(double, backoff_factor) = 0.5;
  TORCH_ARG(std::int64_t, growth_interval) = 2000;
  /// If false, nothing is scaled and every step is taken.
  TORCH_ARG(bool, enabled) = true;
};

/// A scaler of the loss, so that small gradients survive float16: it divides the gradients again
/// before the optimizer sees them, and skips the steps in which one overflowed. PyTorch's
/// GradScaler.
///
///     nn::GradScaler scaler({}, world);
///     ...
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);           // only if the gradients are looked at or clipped
///     const bool taken = scaler.step(optimizer);
///     scaler.update();
///
/// With a group, its ranks skip the same steps and always have the same scale, be they replicas,
/// stages of one model that never see the loss, or owners of shards. Any number of optimizers; an
/// overflow in one skips its step alone. Use it from one thread at a time. Misuse throws
/// InvalidArgument and changes nothing.
///
/// On the device of its gradients the scaler makes no host wait, where step_without_wait() takes
/// step()'s place:
///
///     nn::GradScaler scaler({}, world, device);
class GradScaler {
 public:
  /// Keeps the scale on `device`, whose tensors the group must carry. All ranks of the group must
  /// give the same options and the same type of device.
  explicit GradScaler(GradScalerOptions options = {}, ProcessGroup group = ProcessGroup(),
      torch::Device device = torch::kCPU);

  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;
  ~GradScaler() = default;

  /// Multiplies a loss or other outputs by the scale. On one rank of the group at least.
  torch::Tensor scale(const torch::Tensor& outputs);
  std::vector<torch::Tensor> scale(const std::vector<torch::Tensor>& outputs);

  /// Divides outputs by the scale in force, such as the loss that scale() gave, to look at them.
  torch::Tensor unscaled(const torch::Tensor& outputs) const;

  /// Divides the optimizer's gradients by the scale, in place, once all are there; at most once
  /// before its step(). Gradients of float16 are refused: what they lost cannot come back. A
  /// collective.
  void unscale_(torch::optim::Optimizer& optimizer);  // NOLINT: PyTorch's name

  /// Calls unscale_() if that was not done, then the optimizer's step() if all gradients on all
  /// ranks are finite; returns whether it did. A collective. Waits for the device.
  bool step(torch::optim::Optimizer& optimizer);

  /// Does so without waiting for the device, which leaves the step out itself; with an optimizer
  /// that is no SkippableStep, and on the CPU, the same as step(). A collective.
  void step_without_wait(torch::optim::Optimizer& optimizer);

  /// Returns 1 where a gradient of this iteration overflowed and 0 where none did, on the scaler's
  /// device, between unscale_() and update(); undefined at other times.
  torch::Tensor overflowed() const;

  /// Ends the iteration: lowers the scale if a gradient overflowed, raises it after growth_interval
  /// iterations in which none did; or sets it, the same on all ranks.
  void update(const std::optional<double>& new_scale = std::nullopt);

  bool is_enabled() const { return options_.enabled(); }

  /// Returns the scale in force; 1 if disabled. Waits for the device.
  double scale_factor() const;

  /// Returns it as a float32 scalar on a device, for use before the next update(). Waits for no
  /// device. Not of a disabled scaler.
  torch::Tensor scale_on(const torch::Device& device) const;

  /// Returns how many iterations overflowed since this was last asked. Waits for the device.
  std::int64_t take_skipped();

  /// Returns what a snapshot keeps; nothing if disabled. Take it after update().
  std::optional<GradScalerState> state() const;

  /// Continues from a state, also where this scaler was made with other options; a disabled one
  /// stays as it is. Throws InvalidArgument for the state of a disabled one and for impossible
  /// values.
  void load(const std::optional<GradScalerState>& state);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };

  // One optimizer's gradients since the last update().
  struct Iteration {
    Stage stage = Stage::kReady;
    torch::Tensor found = {};
  };

  // The scale on a device that is not the scaler's, such as that of a pipeline's last stage.
  struct Elsewhere {
    PeerCopier copier;
    PeerCopies scale = {};
  };

  torch::TensorOptions on_device(torch::ScalarType type) const;
  void copy_scale(Elsewhere& there) const;
  void send_scale();
  Stage stage_of(const torch::optim::Optimizer& optimizer) const;
  Iteration& begin_step(torch::optim::Optimizer& optimizer);
  void check_scaled();
  void check_gradients(const torch::optim::Optimizer& optimizer, const torch::Tensor& found);
  torch::Tensor found_by_all() const;
  void adapt_scale(const torch::Tensor& found);

  GradScalerOptions options_;
  ProcessGroup group_;
  torch::Device device_;
  torch::Tensor scale_, growth_tracker_, skipped_;  // undefined if disabled
  mutable std::map<torch::DeviceIndex, Elsewhere> elsewhere_;
  bool has_scaled_ = false;           // on this rank
  bool group_has_scaled_ = false;     // on any rank; known to all alike
  bool group_has_gradients_ = false;  // so did an earlier step
  std::unordered_map<const torch::optim::Optimizer*, Iteration> iterations_;
};

}  // namespace lockstep::nn
