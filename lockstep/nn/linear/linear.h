#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::linear {

/// Returns the kernels that may run, the fastest last.
std::span<const GemmKernel* const> gemm_kernels();

/// Returns a matrix [rows, columns] in fp32 on the CPU as kernels read it.
MatrixView view_of(const at::Tensor& matrix);

MatrixView transposed(const MatrixView& view);

/// Returns the build that is faster for this left matrix of a product, or its transpose: the one
/// that skips zeros where there are many, and work for LibTorch's threads. The product is the same
/// to the bit.
const GemmKernel& kernel_for(const GemmKernel& kernel, const Gemm& gemm, const at::Tensor& left);

/// Computes a product on LibTorch's threads, with the same bits for any number of them.
void multiply(const GemmKernel& kernel, const Gemm& gemm);

/// The arguments of a call of LibTorch's linear.
struct LinearCall {
  const at::Tensor& input;   ///< [..., K]
  const at::Tensor& weight;  ///< [N, K]
  at::Tensor bias;           ///< [N], or undefined
};

/// Returns whether the kernels can compute it: not empty, fp32 on the CPU, and the weight or its
/// transpose is contiguous.
bool is_linear_own(const LinearCall& call);

/// Returns whether products of the kernels are faster than MKL's: on AMD's processors, whose
/// vectors MKL does not use in full.
bool are_products_faster();

/// Returns whether the kernels are also faster, forward and backward together: if products are, and
/// there are some rows, inputs and outputs. Measured with 64 to 4000 of each on one thread of
/// Zen 4.
bool is_linear_faster(const LinearCall& call);

/// Computes a linear layer for which is_linear_own() holds, with the same bits for any number of
/// threads. A backward that is to be differentiated again is LibTorch's.
at::Tensor own_linear(const GemmKernel& kernel, const LinearCall& call);

/// Returns whether kernels_in_use() says that the kernels compute it.
bool is_linear_for_own(const LinearCall& call);

/// Adds left x right to `sum`, which must be contiguous: by the kernels where they can and
/// kernels_in_use() says so, else by LibTorch. The product may be of a shorter type than the sum.
void add_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right);

/// Stores left x right in `result`, which must be contiguous, likewise.
void store_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);

/// LibTorch's matmul on the CPU, which torch::nn::Linear calls of batches with several dimensions:
/// by the kernels where it is linear() of a transposed weight, and kernels_in_use() says so.
at::Tensor dispatched_matmul(const at::Tensor& left, const at::Tensor& right);

/// LibTorch's linear on the CPU, by the kernels where kernels_in_use() says so.
at::Tensor dispatched_linear(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace lockstep::nn::linear
