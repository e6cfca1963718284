#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include "lockstep/nn/fused/rms_norm_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const RmsNormKernel* const> rms_norm_kernels();

/// Returns whether the kernels can: inputs [..., width] and a weight [width] in fp32 on the CPU.
bool is_rms_norm_own(const at::Tensor& input, const at::Tensor& weight);

/// Computes RMSNorm over the last dimension, with the same bits for any number of threads. A
/// backward that is to be differentiated again is LibTorch's.
at::Tensor own_rms_norm(
    const RmsNormKernel& kernel, const at::Tensor& input, const at::Tensor& weight, double epsilon);

/// LibTorch's rms_norm on the CPU, which is nine operators, by the kernels where kernels_in_use()
/// says so.
at::Tensor dispatched_rms_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight, std::optional<double> epsilon);

}  // namespace lockstep::nn::fused
