#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::conv {

/// Returns whether products of windows are faster than oneDNN's convolutions of a stride above 1,
/// forward and backward together, where faster_kinds() has them.
bool is_window_product_faster(const ConvolutionShape& shape);

/// Computes a call of kStrided as matrix products, with the same bits for any number of threads. A
/// backward that is to be differentiated again is LibTorch's. See Note [Products of windows].
at::Tensor window_conv2d(const ConvolutionCall& call, const linear::GemmKernel& kernel);

}  // namespace lockstep::nn::conv
