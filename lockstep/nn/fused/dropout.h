#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/dropout_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const DropoutKernel* const> dropout_kernels();

/// Returns whether the kernels can: fp32 on the CPU, and some values are dropped, but not all.
bool is_dropout_own(const at::Tensor& input, double p);

/// Computes dropout by Note [Dropout]: drops each value with probability p, and scales the others
/// by 1 / (1 - p). Of the same seed, the same places are dropped by any kernel and number of
/// threads.
at::Tensor own_dropout(
    const DropoutKernel& kernel, const at::Tensor& input, double p, std::uint64_t seed);

/// Returns in how many blocks so many values are drawn.
inline std::int64_t dropout_blocks(std::int64_t count) {
  return (count + kDropoutBlock - 1) / kDropoutBlock;
}

/// Returns the job of dropping values with probability p, below 1; where they are is still to say.
DropoutJob dropout_job(double p, std::uint64_t seed);

/// Draws the seed of a dropout from LibTorch's generator.
std::uint64_t drawn_dropout_seed();

/// LibTorch's dropout on the CPU, by the kernels where kernels_in_use() says so: these draw only
/// their seed from the generator.
at::Tensor dispatched_dropout(const at::Tensor& input, double p, bool train);

}  // namespace lockstep::nn::fused
