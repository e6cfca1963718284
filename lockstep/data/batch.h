#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/pixels/pixel_scale.h"

namespace lockstep {

/// A tensor of a batch, under the name that its set gives it.
struct BatchTensor {
  std::string name;
  torch::Tensor tensor;
};

/// The samples of a step; the first dimension of each tensor is the batch. Most sets have one
/// input, images [batch, channels, height, width], and one target, their classes [batch] as int64;
/// there is always an input, and there may be no target.
struct Batch {
  std::vector<BatchTensor> inputs = {};
  std::vector<BatchTensor> targets = {};

  Batch() = default;
  Batch(torch::Tensor input, torch::Tensor target)
      : inputs{{"input", std::move(input)}}, targets{{"target", std::move(target)}} {}

  bool is_empty() const { return inputs.empty(); }

  /// Counts the samples; std::out_of_range for an empty batch.
  std::int64_t size() const { return input().size(0); }

  /// The first input and the first target; std::out_of_range where there is none.
  torch::Tensor& input() { return inputs.at(0).tensor; }
  const torch::Tensor& input() const { return inputs.at(0).tensor; }
  torch::Tensor& target() { return targets.at(0).tensor; }
  const torch::Tensor& target() const { return targets.at(0).tensor; }

  /// Returns what a net takes: all inputs, in their order.
  std::vector<torch::Tensor> input_tensors() const;

  /// Returns a batch of what `change` makes of each tensor.
  template <typename Change>
  Batch map(Change&& change) const {
    Batch made = *this;
    for (BatchTensor& input : made.inputs) input.tensor = change(input.tensor);
    for (BatchTensor& target : made.targets) target.tensor = change(target.tensor);
    return made;
  }
};

namespace data {

/// One of the tensors that a sample consists of: an input where the set names them, or a target.
struct TensorForm {
  std::string name;
  std::vector<std::int64_t> sizes;         ///< of one sample; none: it is a number
  torch::ScalarType type = torch::kFloat;  ///< or kLong, kByte, kBool

  std::int64_t elements() const;
  std::string text() const;  ///< for people: `mask [16] float`
  bool operator==(const TensorForm&) const = default;
};

/// The target of a classification: one number.
inline const TensorForm kClassTarget{"target", {}, torch::kLong};

/// The form of the memory of batches.
struct BatchForm {
  ImageShape shape;
  torch::ScalarType dtype = torch::kFloat;  ///< or kBFloat16
  bool pinned = false;                      ///< page-locked, for copies to an accelerator
  bool channels_last = false;               ///< NHWC in memory; otherwise NCHW
  /// Of a set that names its inputs: they take the place of images, each row by row in memory; of
  /// `dtype`, but for those that are not float.
  std::vector<TensorForm> inputs = {};
  std::vector<TensorForm> targets = {kClassTarget};  ///< row by row; float ones stay float
};

/// Makes a batch of so many samples, its memory not set.
Batch empty_batch(std::int64_t size, const BatchForm& form);

/// Returns whether a batch in the host's memory is of that size and form, pinned or not.
bool has_form(const Batch& batch, std::int64_t size, const BatchForm& form);

/// Returns whether the batch is the only owner of its memory, and no view of it exists.
bool is_held_by_nobody_else(const Batch& batch);

/// Returns whether a batch is of that size and form and nobody else holds its memory or a view of
/// it; false for pinned memory.
bool can_be_reused(const Batch& batch, std::int64_t size, const BatchForm& form);

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

}  // namespace data
}  // namespace lockstep
