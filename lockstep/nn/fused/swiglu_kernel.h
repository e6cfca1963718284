#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Values that lie in one piece, all of one type: silu(gates) * values, and its gradients.
struct SwigluJob {
  Element element;
  const void *gates, *values;
  void* outputs;
  const void* gradients;                   ///< of the outputs
  void *gate_gradients, *value_gradients;  ///< nullptr: not asked for
};

/// One build of SwiGLU's product.
struct SwigluKernel {
  const char* name;
  void (*forward)(const SwigluJob& job, Range range);
  void (*backward)(const SwigluJob& job, Range range);
};

const SwigluKernel& swiglu_plain();
const SwigluKernel& swiglu_avx2();
const SwigluKernel& swiglu_avx512();

}  // namespace lockstep::nn::fused
