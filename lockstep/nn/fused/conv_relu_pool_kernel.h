#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// The size of the block: images of one channel, `channels` filters of 3x3, padding 1, pool 2x2.
struct ConvReluPoolShape {
  std::int64_t height, width, channels;
};

/// Stands in the codes for a window whose largest value is not positive: ReLU lets nothing through.
constexpr std::uint8_t kDead = 4;

/// A window's codes are padded to a multiple of this: the lanes of the longest vector.
constexpr std::int64_t kCodeUnit = 16;

/// The forward pass of some images: `pooled` is [images, channels, h/2, w/2], `codes` are [images,
/// h/2, w/2, code_stride]. A code is the winner's place in its window, column by column: 0, 1, 2,
/// 3, or kDead.
struct ForwardJob {
  ConvReluPoolShape shape;
  std::int64_t code_stride;
  Element image_element, pooled_element;
  std::int64_t image_count;
  const void* images;   ///< [images, height, width]
  const float* weight;  ///< [channels, 3, 3]
  const float* bias;    ///< [channels]
  void* pooled;
  std::uint8_t* codes;
  float* scratch;  ///< forward_scratch floats
};

/// The backward pass of some images: `sums` gets, for each channel, the gradient of its 9
/// weights and of its bias.
struct BackwardJob {
  ConvReluPoolShape shape;
  std::int64_t code_stride;
  Element image_element, pooled_element;
  std::int64_t image_count;
  const void* images;
  const void* pooled_gradient;
  const std::uint8_t* codes;
  float* sums;     ///< [channels, 10]
  float* scratch;  ///< backward_scratch floats
};

/// One build of the loops.
struct ConvReluPoolKernel {
  const char* name;
  std::int64_t (*forward_scratch)(const ConvReluPoolShape& shape);
  std::int64_t (*backward_scratch)(const ConvReluPoolShape& shape);
  void (*forward)(const ForwardJob& job);
  void (*backward)(const BackwardJob& job);
};

const ConvReluPoolKernel& conv_relu_pool_plain();
const ConvReluPoolKernel& conv_relu_pool_avx2();
const ConvReluPoolKernel& conv_relu_pool_avx512();

}  // namespace lockstep::nn::fused
