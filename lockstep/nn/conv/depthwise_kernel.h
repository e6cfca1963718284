#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/conv/window_shape.h"
#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::conv {

/// Returns whether a kernel has loops for the outputs of a shape.
constexpr bool has_output_loops(const WindowShape& shape) {
  const bool is_odd = shape.kernel_width == 3 || shape.kernel_width == 5 || shape.kernel_width == 7;
  return is_odd && (shape.stride_width == 1 || shape.stride_width == 2);
}

/// In a depthwise convolution each channel has a kernel of its own. Arrays of values a tap and
/// channel have a row for each tap, of padded(channels) floats.
struct DepthwiseWeightJob {
  WindowShape shape;
  const float* images;
  const float* gradient;  ///< of the output
  float* sums;            ///< the gradient of the weights; zero before
};

struct DepthwiseImageJob {
  WindowShape shape;
  const float* weights;
  const float* gradient;  ///< of the output
  float* images;          ///< the gradient of the images
};

/// outputs = images * weights + bias
struct DepthwiseJob {
  WindowShape shape;
  const float* images;
  const float* weights;
  const float* bias;  ///< padded(channels), or none
  float* outputs;
};

/// One build of the loops.
struct DepthwiseKernel {
  const char* name;
  std::int64_t lanes;  ///< channels at a time

  std::int64_t padded(std::int64_t channels) const {
    return (channels + lanes - 1) / lanes * lanes;
  }

  /// Computes these rows of outputs, of all images, if the shape has_output_loops().
  void (*convolve)(const DepthwiseJob& job, Range rows);
  /// Sums over all images, for these of the blocks of `lanes` channels.
  void (*sum_weights)(const DepthwiseWeightJob& job, Range blocks);
  /// Computes these rows, of all images.
  void (*differentiate)(const DepthwiseImageJob& job, Range rows);
};

const DepthwiseKernel& depthwise_plain();
const DepthwiseKernel& depthwise_avx2();
const DepthwiseKernel& depthwise_avx512();

}  // namespace lockstep::nn::conv
