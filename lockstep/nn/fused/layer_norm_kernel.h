#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// outputs = (inputs - mean) * factor * weight + bias, of rows [rows, width] in one piece, where
/// the factor of a row is 1 / sqrt(its variance + epsilon).
struct LayerNormJob {
  Element element;  ///< of inputs and outputs
  std::int64_t width;
  const void* inputs;
  const float *weight, *bias;  ///< a bias or none
  float epsilon;
  void* outputs;
  float *means, *factors;  ///< [rows]
};

/// The same rows, on the way back.
struct LayerNormGradientJob {
  Element element;  ///< of inputs and gradients
  std::int64_t width;
  const void* inputs;
  const float *weight, *means, *factors;
  const void* gradients;
  void* input_gradients;  ///< or none
};

/// One build of layer norm.
struct LayerNormKernel {
  const char* name;
  void (*forward)(const LayerNormJob& job, Range rows);
  /// Adds the parameters' gradients to sums [2, width], of the weight and of the bias, in the order
  /// of rows.
  void (*backward)(const LayerNormGradientJob& job, Range rows, float* sums);
};

const LayerNormKernel& layer_norm_plain();
const LayerNormKernel& layer_norm_avx2();
const LayerNormKernel& layer_norm_avx512();

}  // namespace lockstep::nn::fused
