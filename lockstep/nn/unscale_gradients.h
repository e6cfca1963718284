#pragma once

#include <vector>

#include <torch/types.h>

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

}  // namespace lockstep::nn
