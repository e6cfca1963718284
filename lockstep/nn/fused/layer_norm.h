#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include "lockstep/nn/fused/layer_norm_kernel.h"

namespace lockstep::nn::fused {

/// Returns the kernels that may run, the fastest last.
std::span<const LayerNormKernel* const> layer_norm_kernels();

/// The arguments of a layer norm over the last dimension.
struct LayerNormCall {
  const at::Tensor& input;   ///< [..., width]
  const at::Tensor& weight;  ///< [width]
  at::Tensor bias;           ///< [width], or undefined
  double epsilon;
};

/// Returns whether the kernels can compute it: not empty, on the CPU, parameters in fp32, and the
/// input in fp32 or bf16.
bool is_layer_norm_own(const LayerNormCall& call);

/// Computes layer norm, its statistics in fp32, with the same bits for any number of threads. A
/// backward that is to be differentiated again is LibTorch's.
at::Tensor own_layer_norm(const LayerNormKernel& kernel, const LayerNormCall& call);

/// LibTorch's layer_norm on the CPU, by the kernels where kernels_in_use() says so.
at::Tensor dispatched_layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double epsilon,
    bool may_use_cudnn);

}  // namespace lockstep::nn::fused
