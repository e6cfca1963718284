#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/choice.h"
#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::conv {

/// The arguments of a call of conv2d.
struct ConvolutionCall {
  const at::Tensor& images;  ///< [N, C, H, W], or [C, H, W]
  const at::Tensor& weight;  ///< [K, C / groups, h, w]
  const at::Tensor& bias;    ///< [K], or undefined
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;
};

/// Returns whether our convolution can compute it: fp32 or bf16 on the CPU, channels-last, 3x3,
/// stride 1, padding 0 or 1, no dilation, one group.
bool is_covered(const ConvolutionCall& call);

/// Computes a covered convolution in Winograd's form, differentiable once: its output is
/// channels-last. A second derivative is an Error.
at::Tensor own_conv2d(const ConvolutionCall& call, const WinogradKernel& kernel);

/// Computes it by `who`. What is not covered is LibTorch's; unless only that is asked for, oneDNN
/// within it computes 1x1 convolutions of few images too.
at::Tensor conv2d(const ConvolutionCall& call, Kernels who);

/// Returns the fastest build that this processor runs.
const WinogradBuild& fastest_winograd();

/// Lets conv2d() compute all conv2d of this process on the CPU from now on, by kernels_in_use().
void take_place_of_conv2d();

}  // namespace lockstep::nn::conv
