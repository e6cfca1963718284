#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::nn::conv {

/// The arguments of LibTorch's conv_transpose2d.
struct TransposedCall {
  const at::Tensor& images;  ///< [N, C, H, W]
  const at::Tensor& weight;  ///< [C, K, h, w]
  const std::optional<at::Tensor>& bias;
  at::IntArrayRef stride, padding, output_padding;
  std::int64_t groups;
  at::IntArrayRef dilation;
};

/// Returns whether each pixel becomes a tile of its own: strides are the kernel's sizes, and
/// nothing is padded, dilated or grouped; in fp32 on the CPU, images and output channels-last.
bool makes_tiles(const TransposedCall& call);

/// Computes what makes_tiles() allows as a linear layer of the pixels, whose outputs are then put
/// in their places.
at::Tensor tiles_of_pixels(const TransposedCall& call);

/// LibTorch's conv_transpose2d on the CPU, by a linear layer where kernels_in_use() says so.
at::Tensor dispatched_conv_transpose2d(const at::Tensor& images, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef output_padding, std::int64_t groups, at::IntArrayRef dilation);

}  // namespace lockstep::nn::conv
