#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/batch_norm_relu.h"
#include "lockstep/nn/fused/squeeze_excite_kernel.h"

namespace lockstep::nn::fused {

/// The function that makes gates.
enum class Gate { kSigmoid, kHardsigmoid };

/// The layers that make an image's gates [C] of its channels' means [C], convolutions of one pixel:
/// gate(second(between(first(means)))).
struct SqueezeExciteLayers {
  at::Tensor first_weight, first_bias;    ///< [R, C, 1, 1], [R]
  at::Tensor second_weight, second_bias;  ///< [C, R, 1, 1], [C]
  Activation between;
  Gate gate;
};

/// Returns the kernels that may run, the fastest last.
std::span<const SqueezeExciteKernel* const> squeeze_excite_kernels();

/// Returns whether the kernels can: what is_batch_norm_fused() says, in fp32, and weights and
/// biases in fp32 on the CPU, contiguous.
bool is_squeeze_excite_own(const BatchNormArguments& norm, const SqueezeExciteLayers& layers);

/// Computes norm, activation, and squeeze and excitation in the passes of Note [Squeeze and
/// excitation], within 1e-5 of the values' size. A backward that is to be differentiated again is
/// LibTorch's.
at::Tensor own_squeeze_excite(const SqueezeExciteKernel& kernel, const BatchNormArguments& norm,
    Activation activation, const SqueezeExciteLayers& layers);

/// The same for what follows a batch norm, by the fastest kernels.
at::Tensor excited_batch_norm(const BatchNormArguments& norm, const AfterBatchNorm& after);

/// Multiplies values [N, C, H, W] by their gates, by LibTorch's operators.
at::Tensor squeeze_excite(const at::Tensor& values, const SqueezeExciteLayers& layers);

}  // namespace lockstep::nn::fused
