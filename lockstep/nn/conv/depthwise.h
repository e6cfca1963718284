#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/conv/depthwise_kernel.h"

namespace lockstep::nn::conv {

/// Returns the builds that may run, the fastest last.
std::span<const DepthwiseKernel* const> depthwise_kernels();

/// The part that a kernel computes: the gradients of images, but for stride 1, and of weights; or
/// outputs and gradients of stride 1 as well, where it has_output_loops().
enum class DepthwisePart { kGradients, kAll };

/// Computes a call of kDepthwise, the part by a kernel, with the same bits for any number of
/// threads, the rest by LibTorch. A backward that is to be differentiated again is LibTorch's. See
/// Note [Depthwise convolutions].
at::Tensor depthwise_conv2d(
    const ConvolutionCall& call, const DepthwiseKernel& kernel, DepthwisePart part);

}  // namespace lockstep::nn::conv
