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

/// Computes a call of kDepthwise: LibTorch's forward pass, and gradients by a kernel; those of
/// these sizes have the same bits for any number of threads. A backward that is to be
/// differentiated again is LibTorch's. See Note [Depthwise convolutions].
at::Tensor depthwise_conv2d(const ConvolutionCall& call, const DepthwiseKernel& kernel);

}  // namespace lockstep::nn::conv
