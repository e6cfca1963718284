#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/cross_entropy_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const CrossEntropyKernel* const> cross_entropy_kernels();

/// Returns whether the kernels can: scores [rows, classes] in fp32 or bf16 on the CPU, in one
/// piece.
bool is_cross_entropy_own(const at::Tensor& scores);

/// Returns the cross entropies [rows] in fp32 of scores with int64 labels [rows], and writes the
/// gradients of their sum over the scores. A row whose label is `ignored` gives zeros. Throws
/// InvalidArgument if another label is not one of the classes.
at::Tensor own_cross_entropy(const CrossEntropyKernel& kernel, const at::Tensor& scores,
    const at::Tensor& labels, std::int64_t ignored, double smoothing);

}  // namespace lockstep::nn::fused
