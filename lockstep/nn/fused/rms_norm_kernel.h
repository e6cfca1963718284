#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// outputs = inputs * factor * weight, of rows [rows, width] in one piece, where the factor of a
/// row is 1 / sqrt(mean of its squares + epsilon).
struct RmsNormJob {
  std::int64_t width;
  const float *inputs, *weight;
  float epsilon;
  float *outputs, *factors;  ///< factors [rows]
};

/// The same rows, on the way back.
struct RmsNormGradientJob {
  std::int64_t rows, width;
  const float *inputs, *weight, *factors, *gradients;
  float *input_gradients, *weight_gradient;  ///< either may be none
};

/// One build of RMSNorm.
struct RmsNormKernel {
  const char* name;
  void (*forward)(const RmsNormJob& job, Range rows);
  void (*input_gradients)(const RmsNormGradientJob& job, Range rows);
  /// Of blocks of kRmsNormColumns columns; each is a sum in the order of rows.
  void (*weight_gradient)(const RmsNormGradientJob& job, Range blocks);
};

constexpr std::int64_t kRmsNormColumns = 64;

const RmsNormKernel& rms_norm_plain();
const RmsNormKernel& rms_norm_avx2();
const RmsNormKernel& rms_norm_avx512();

}  // namespace lockstep::nn::fused
