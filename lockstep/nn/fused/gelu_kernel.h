#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// x times the normal distribution up to x, or the form with tanh that is close to it.
enum class GeluForm { kExact, kTanh };

/// Values that lie in one piece, and what is made of them.
struct GeluJob {
  GeluForm form;
  Element element;  ///< of all
  const void *inputs, *gradients;
  void *outputs, *input_gradients;
};

/// One build of GELU.
struct GeluKernel {
  const char* name;
  void (*forward)(const GeluJob& job, Range range);
  /// input_gradients = gradients * d gelu(inputs) / d inputs
  void (*backward)(const GeluJob& job, Range range);
};

const GeluKernel& gelu_plain();
const GeluKernel& gelu_avx2();
const GeluKernel& gelu_avx512();

}  // namespace lockstep::nn::fused
