#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::nn::conv {

/// The arguments of a call of conv2d.
struct ConvolutionCall {
  const at::Tensor& images;  ///< [N, C, H, W], or [C, H, W]
  const at::Tensor& weight;  ///< [K, C / groups, h, w]
  const at::Tensor& bias;    ///< [K], or undefined
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;
};

/// The numbers of a call along the height (0) or the width (1).
struct Axis {
  std::int64_t images, kernel, stride, padding, dilation;

  /// Returns how many pixels come out; 0 if the kernel is larger than the padded images.
  std::int64_t outputs() const;
};
Axis axis_of(const ConvolutionCall& call, std::size_t which);

/// Returns whether both values of a list, or the only one, are `value`.
bool are_both(at::IntArrayRef list, std::int64_t value);

/// Returns whether it is an ordinary tensor of the CPU with that type.
bool is_plain(const at::Tensor& tensor, at::ScalarType type);

/// Returns whether kernels of our own may look at it: at least one image, all in fp32 or bf16 on
/// the CPU, one group, no dilation, channels-last, and sizes that LibTorch does not refuse.
bool is_usual(const ConvolutionCall& call);

/// Returns whether the output is channels-last, by LibTorch's rule.
bool is_channels_last(const ConvolutionCall& call);

/// Computes it by LibTorch's operator.
at::Tensor conv2d_of_libtorch(const ConvolutionCall& call);

}  // namespace lockstep::nn::conv
