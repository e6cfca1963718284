#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/gelu_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const GeluKernel* const> gelu_kernels();

/// Returns whether the kernels can: fp32 or bf16 on the CPU, in one piece.
bool is_gelu_own(const at::Tensor& input);

/// Computes GELU as LibTorch does, in fp32 within 1e-6 of the values' size. A backward that is to
/// be differentiated again is LibTorch's.
at::Tensor own_gelu(const GeluKernel& kernel, GeluForm form, const at::Tensor& input);

/// Computes the same by the kernels where they can and kernels_in_use() says so, else by LibTorch.
at::Tensor gelu(const at::Tensor& input, GeluForm form);

}  // namespace lockstep::nn::fused
