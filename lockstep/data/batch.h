#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// The input of a step: images [batch, channels, height, width], classes [batch] as int64.
struct Batch {
  torch::Tensor data;
  torch::Tensor target;
};

/// The class of a sample that must not be counted: cross entropy leaves it out by default.
inline constexpr std::int64_t kIgnoredTarget = -100;

namespace data {

/// The form of the memory of batches.
struct BatchForm {
  ImageShape shape;
  torch::ScalarType dtype = torch::kFloat;  ///< or kBFloat16
  bool pinned = false;                      ///< page-locked, for copies to an accelerator
  bool channels_last = false;               ///< NHWC in memory; otherwise NCHW
};

/// Makes a batch of so many samples, its memory not set.
Batch empty_batch(std::int64_t size, const BatchForm& form);

/// Returns whether nobody else holds the memory of a batch or a view of it.
bool is_held_by_nobody_else(const Batch& batch);

/// Returns whether a batch is of that size and form and nobody else holds its memory or a view of
/// it; false for pinned memory.
bool can_be_reused(const Batch& batch, std::int64_t size, const BatchForm& form);

}  // namespace data
}  // namespace lockstep
