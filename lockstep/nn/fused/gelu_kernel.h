#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// x times the normal distribution up to x, or the form with tanh that is close to it.
enum class GeluForm { kExact, kTanh };

/// One build of GELU, over values that lie in one piece.
struct GeluKernel {
  const char* name;
  void (*forward)(GeluForm form, const float* inputs, Range range, float* outputs);
  /// input_gradients = gradients * d gelu(inputs) / d inputs
  void (*backward)(GeluForm form, const float* inputs, const float* gradients, Range range,
      float* input_gradients);
};

const GeluKernel& gelu_plain();
const GeluKernel& gelu_avx2();
const GeluKernel& gelu_avx512();

}  // namespace lockstep::nn::fused
