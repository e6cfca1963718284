#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/grad_scaler_state.h"

namespace lockstep::nn {

/// What unscale_gradients() met.
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

/// Multiplies the loss, so that small gradients survive float16, divides the gradients again before
/// the optimizer sees them, and skips the steps in which one overflowed: PyTorch's GradScaler.
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
class GradScaler {
 public:
  /// All ranks of the group must give the same options.
  explicit GradScaler(GradScalerOptions options = {}, ProcessGroup group = ProcessGroup());

  /// Multiplies a loss or other outputs by the scale. On one rank of the group at least.
  torch::Tensor scale(const torch::Tensor& outputs);
  std::vector<torch::Tensor> scale(const std::vector<torch::Tensor>& outputs);

  /// Divides the optimizer's gradients by the scale, in place, once all are there; at most once
  /// before its step(). Gradients of float16 are refused: what they lost cannot come back. A
  /// collective.
  void unscale_(torch::optim::Optimizer& optimizer);  // NOLINT: PyTorch's name

  /// Calls unscale_() if that was not done, then the optimizer's step() if all gradients on all
  /// ranks are finite; returns whether it did. A collective.
  bool step(torch::optim::Optimizer& optimizer);

  /// Ends the iteration: lowers the scale if a gradient overflowed, raises it after growth_interval
  /// iterations in which none did; or sets it, the same on all ranks.
  void update(const std::optional<double>& new_scale = std::nullopt);

  bool is_enabled() const { return options_.enabled(); }

  /// Returns the scale in force; 1 if disabled.
  double scale_factor() const { return is_enabled() ? scale_ : 1; }

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
    bool any_gradient = false;
    bool overflowed = false;
  };

  using Flags = std::array<bool, 2>;

  Stage stage_of(const torch::optim::Optimizer& optimizer) const;
  void check_scaled();
  Flags agreed(const Flags& own) const;
  void adapt_scale();

  GradScalerOptions options_;
  ProcessGroup group_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  bool has_scaled_ = false;        // on this rank
  bool group_has_scaled_ = false;  // on any rank; known to all alike
  std::unordered_map<const torch::optim::Optimizer*, Iteration> iterations_;
};

}  // namespace lockstep::nn
