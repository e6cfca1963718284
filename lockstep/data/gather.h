#pragma once

#include <span>

#include <torch/types.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/pixel_scale.h"

namespace lockstep::data {

/// Makes an uninitialised tensor of shape [batch, channels, height, width] that lies in memory as
/// NHWC.
///
/// The strides say so even for one channel, where `contiguous(ChannelsLast)` would leave NCHW
/// strides and a convolution would answer in NCHW.
torch::Tensor empty_channels_last(
    std::int64_t batch, const ImageShape& shape, torch::ScalarType dtype);

/// Returns whether a CPU tensor has the shape and strides of empty_channels_last, whatever its
/// type.
bool is_channels_last(const torch::Tensor& tensor, std::int64_t batch, const ImageShape& shape);

/// Copies the images of these indices, scaled, into a tensor of empty_channels_last's form, float
/// or bf16, in one pass.
///
/// An index outside [0, images.size()), another shape, type or layout of `out` is an
/// InvalidArgument.
void gather_images_into(const torch::Tensor& out, const InMemoryImages& images,
    std::span<const std::int64_t> indices, const PixelScale& scale);

/// Copies the labels of these indices into an int64 tensor of shape [indices].
void gather_labels_into(
    const torch::Tensor& out, const InMemoryImages& images, std::span<const std::int64_t> indices);

/// Does the same into a new tensor.
torch::Tensor gather_images(const InMemoryImages& images, std::span<const std::int64_t> indices,
    const PixelScale& scale, torch::ScalarType dtype = torch::kFloat);

/// Does the same into a new tensor.
torch::Tensor gather_labels(const InMemoryImages& images, std::span<const std::int64_t> indices);

}  // namespace lockstep::data
