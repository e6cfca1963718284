#pragma once

#include <algorithm>
#include <span>

#include <torch/types.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/pixels/pixel_scale.h"

namespace lockstep::data {

/// Makes an uninitialised tensor of shape [batch, channels, height, width] that lies in memory as
/// NCHW, or as NHWC.
///
/// For NHWC the strides say so even for one channel, where `contiguous(ChannelsLast)` would leave
/// NCHW strides and a convolution would answer in NCHW.
torch::Tensor empty_images(
    std::int64_t batch, const ImageShape& shape, torch::ScalarType dtype, bool channels_last);

/// Returns whether a CPU tensor has the shape and strides of such an empty_images, whatever its
/// type.
bool are_images(
    const torch::Tensor& tensor, std::int64_t batch, const ImageShape& shape, bool channels_last);

/// Returns how many channels lie in planes of their own: 1 where those of a pixel are together, as
/// in NHWC. Refuses a tensor of another form than empty_images has, as an InvalidArgument.
std::int64_t planes_of(const torch::Tensor& images, std::int64_t batch, const ImageShape& shape);

/// Copies an image, the channels of a pixel together, into this number of planes.
template <typename From, typename To>
void copy_planes(std::span<const From> pixels, std::int64_t planes, To* out) {
  if (planes == 1) {
    std::copy(pixels.begin(), pixels.end(), out);
    return;
  }
  const auto stride = static_cast<std::size_t>(planes);
  for (std::size_t plane = 0; plane < stride; ++plane)
    for (std::size_t at = plane; at < pixels.size(); at += stride) *out++ = pixels[at];
}

/// Copies the images of these indices, scaled, into a tensor of empty_images' form, float or bf16,
/// in one pass.
///
/// An index outside [0, images.size()), another shape, type or layout of `out` is an
/// InvalidArgument.
void gather_images_into(const torch::Tensor& out, const InMemoryImages& images,
    std::span<const std::int64_t> indices, const PixelScale& scale);

/// Copies the labels of these indices into an int64 tensor of shape [indices].
void gather_labels_into(
    const torch::Tensor& out, const InMemoryImages& images, std::span<const std::int64_t> indices);

}  // namespace lockstep::data
