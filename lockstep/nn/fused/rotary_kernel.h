#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Heads [places, heads, 2 x half] in one piece, of sequences of `length` places, to be turned: of
/// each head the numbers i and half + i by the angle of i at its place.
struct RotaryJob {
  Element element;
  const void* inputs;
  void* outputs;
  const float *cosines, *sines;  ///< [length, half]
  std::int64_t length, heads, half;
  bool is_back;  ///< by the opposite angles
};

/// One build of rotary positions.
struct RotaryKernel {
  const char* name;
  void (*turn)(const RotaryJob& job, Range places);
};

const RotaryKernel& rotary_plain();
const RotaryKernel& rotary_avx2();
const RotaryKernel& rotary_avx512();

}  // namespace lockstep::nn::fused
