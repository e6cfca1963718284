#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::linear {

/// Returns the kernels that may run, the fastest last.
std::span<const GemmKernel* const> gemm_kernels();

/// The arguments of a call of LibTorch's linear.
struct LinearCall {
  const at::Tensor& input;   ///< [..., K]
  const at::Tensor& weight;  ///< [N, K]
  at::Tensor bias;           ///< [N], or undefined
};

/// Returns whether the kernels can: fp32 on the CPU, of a weight or its transpose that lies in one
/// piece, at least one product.
bool is_linear_own(const LinearCall& call);

/// Returns whether they are also faster, forward and backward together, as measured on products of
/// 64 to 4000 in each direction by one thread of Zen 4: on AMD's processors, of which MKL does not
/// use all.
bool is_linear_faster(const LinearCall& call);

/// Computes what is_linear_own() allows, with the same bits for any number of threads. A backward
/// that is to be differentiated again is LibTorch's.
at::Tensor own_linear(const GemmKernel& kernel, const LinearCall& call);

/// Returns whether kernels_in_use() says that the kernels compute it.
bool is_linear_for_own(const LinearCall& call);

/// LibTorch's linear on the CPU, by the kernels where kernels_in_use() says so.
at::Tensor dispatched_linear(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace lockstep::nn::linear
