#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// outputs = inputs * scale + residuals, of rows [rows, width] in one piece.
struct LayerScaleJob {
  Element element;  ///< of inputs
  std::int64_t width;
  const void* inputs;
  const float *scale, *residuals;  ///< scale [width]
  float* outputs;
};

/// The same rows, on the way back.
struct LayerScaleGradientJob {
  Element element;  ///< of inputs and their gradients
  std::int64_t width;
  const void* inputs;
  const float *scale, *gradients;
  void* input_gradients;  ///< or none
};

/// One build of a layer's scale and residual.
struct LayerScaleKernel {
  const char* name;
  void (*forward)(const LayerScaleJob& job, Range rows);
  /// Adds the gradient of the scale to sums [width], unless there are none, in the order of rows.
  void (*backward)(const LayerScaleGradientJob& job, Range rows, float* sums);
};

const LayerScaleKernel& layer_scale_plain();
const LayerScaleKernel& layer_scale_avx2();
const LayerScaleKernel& layer_scale_avx512();

}  // namespace lockstep::nn::fused
