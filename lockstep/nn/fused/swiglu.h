#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/swiglu_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const SwigluKernel* const> swiglu_kernels();

/// Returns whether the kernels can: both fp32 or bf16 on the CPU, of the same sizes, contiguous.
bool is_swiglu_own(const at::Tensor& gates, const at::Tensor& values);

/// Computes silu(gates) * values, in fp32, rounded once. A backward that is to be differentiated
/// again is LibTorch's.
at::Tensor own_swiglu(
    const SwigluKernel& kernel, const at::Tensor& gates, const at::Tensor& values);

/// Computes the same by the kernels where they can and kernels_in_use() says so, else by LibTorch.
at::Tensor swiglu(const at::Tensor& gates, const at::Tensor& values);

}  // namespace lockstep::nn::fused
