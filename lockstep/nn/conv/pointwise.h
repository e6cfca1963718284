#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/conv/convolution.h"
#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::conv {

/// Returns whether our products are faster than oneDNN's 1x1 convolutions, forward and backward
/// together, where faster_kinds() has them.
bool is_product_faster(const ConvolutionShape& shape);

/// Computes a call of kPointwise as matrix products, with the same bits for any number of threads.
/// A backward that is to be differentiated again is LibTorch's. See Note [1x1 convolutions as
/// products].
at::Tensor product_conv2d(const ConvolutionCall& call, const linear::GemmKernel& kernel);

}  // namespace lockstep::nn::conv
