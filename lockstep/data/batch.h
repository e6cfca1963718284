#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// The input of a step: images [batch, channels, height, width], classes [batch] as int64. Where a
/// set names the inputs of its samples, `data` is the first of them and `more` has the others.
struct Batch {
  torch::Tensor data;
  torch::Tensor target;
  std::vector<torch::Tensor> more = {};

  /// Returns what a net takes: `data`, then `more`.
  std::vector<torch::Tensor> inputs() const;
};

/// The class of a sample that must not be counted: cross entropy leaves it out by default.
inline constexpr std::int64_t kIgnoredTarget = -100;

namespace data {

/// One of the tensors that a sample consists of, where a set names them.
struct InputForm {
  std::string name;
  std::vector<std::int64_t> sizes;         ///< of one sample; none: it is a number
  torch::ScalarType type = torch::kFloat;  ///< or kLong

  std::int64_t elements() const;
  std::string text() const;  ///< for people: `mask [16] float`
  bool operator==(const InputForm&) const = default;
};

/// The form of the memory of batches.
struct BatchForm {
  ImageShape shape;
  torch::ScalarType dtype = torch::kFloat;  ///< or kBFloat16
  bool pinned = false;                      ///< page-locked, for copies to an accelerator
  bool channels_last = false;               ///< NHWC in memory; otherwise NCHW
  /// Of a set that names its inputs: they take the place of images, each row by row in memory; of
  /// `dtype`, but for those of int64.
  std::vector<InputForm> inputs = {};
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

}  // namespace data
}  // namespace lockstep
