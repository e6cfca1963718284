#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep::nn {

/// Is what unscale_gradients() met.
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

}  // namespace lockstep::nn
