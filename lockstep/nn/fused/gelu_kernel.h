#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// One build of GELU in its form with tanh, over values that lie in one piece.
struct GeluKernel {
  const char* name;
  void (*forward)(const float* inputs, Range range, float* outputs);
  /// input_gradients = gradients * d gelu(inputs) / d inputs
  void (*backward)(
      const float* inputs, const float* gradients, Range range, float* input_gradients);
};

const GeluKernel& gelu_plain();
const GeluKernel& gelu_avx2();
const GeluKernel& gelu_avx512();

}  // namespace lockstep::nn::fused
