#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/rotary_kernel.h"

namespace lockstep::nn::fused {

/// Cosines and sines of rotary positions, [T, size / 2] each, in fp32.
struct Turns {
  const at::Tensor &cosines, &sines;
};

/// Returns the kernels that may run, the fastest last.
std::span<const RotaryKernel* const> rotary_kernels();

/// Returns whether the kernels can: heads [N, T, heads, size] in fp32 or bf16 on the CPU.
bool is_rotary_own(const at::Tensor& heads);

/// Turns the pairs (i, size / 2 + i) of each head by the angles of its place, in fp32, rounded
/// once.
at::Tensor own_rotary(const RotaryKernel& kernel, const at::Tensor& heads, const Turns& turns);

/// Returns whether kernels_in_use() says that the kernels compute it.
bool is_rotary_for_own(const at::Tensor& heads);

}  // namespace lockstep::nn::fused
