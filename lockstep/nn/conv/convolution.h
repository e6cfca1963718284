#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/choice.h"
#include "lockstep/nn/conv/convolution_call.h"
#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::conv {

/// Returns whether our convolution can compute it: fp32 or bf16 on the CPU, channels-last, 3x3,
/// stride 1, padding 0 or 1, no dilation, one group.
bool is_covered(const ConvolutionCall& call);

/// Computes a covered convolution in Winograd's form, whose output is channels-last. A backward
/// that is to be differentiated again is LibTorch's.
at::Tensor own_conv2d(const ConvolutionCall& call, const WinogradKernel& kernel);

/// Computes it by `who`. What is not covered is LibTorch's; unless only that is asked for,
/// convolutions to a single pixel are matrix products, and oneDNN within LibTorch computes 1x1
/// convolutions of few images too.
at::Tensor conv2d(const ConvolutionCall& call, Kernels who);

/// Returns the fastest build that this processor runs.
const WinogradBuild& fastest_winograd();

/// Lets conv2d() compute all conv2d of this process on the CPU from now on, by kernels_in_use().
void take_place_of_conv2d();

}  // namespace lockstep::nn::conv
