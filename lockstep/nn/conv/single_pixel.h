#pragma once

#include "lockstep/nn/conv/convolution_call.h"

namespace lockstep::nn::conv {

/// Returns whether the output of a call has one pixel, so that single_pixel_conv2d() computes it:
/// fp32 or bf16 on the CPU, channels-last, one group, no dilation, any kernel, stride and padding.
bool is_single_pixel(const ConvolutionCall& call);

/// Computes such a convolution as one matrix product, as often differentiable as LibTorch's: its
/// output is [N, K, 1, 1]. See Note [Convolutions to a single pixel].
at::Tensor single_pixel_conv2d(const ConvolutionCall& call);

}  // namespace lockstep::nn::conv
