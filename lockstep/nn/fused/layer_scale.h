#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/layer_scale_kernel.h"

namespace lockstep::nn::fused {

/// The values of a residual block's branch, which are scaled, and the residual that is added:
/// ConvNeXt's and CaiT's layer scale.
struct LayerScaleCall {
  const at::Tensor& input;
  const at::Tensor& scale;  ///< [C], of dimension 1 of maps [N, C, H, W], else of the last one
  const at::Tensor& residual;
  bool is_of_maps;
};

/// Returns the kernels that may run, the fastest last.
std::span<const LayerScaleKernel* const> layer_scale_kernels();

/// Returns whether the kernels can compute it: not empty, on the CPU, in fp32, the input also in
/// bf16; input and residual have the same sizes and lie in one piece, the scaled dimension last.
bool is_layer_scale_own(const LayerScaleCall& call);

/// Computes input * scale + residual, with the same bits for any number of threads. A backward that
/// is to be differentiated again is LibTorch's.
at::Tensor own_layer_scale(const LayerScaleKernel& kernel, const LayerScaleCall& call);

}  // namespace lockstep::nn::fused
