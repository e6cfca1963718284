#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/schedule/checkpoint_rule.h"

namespace lockstep {

/// Notices changes of tensors in place.
class Unchanged {
 public:
  explicit Unchanged(std::vector<torch::Tensor> tensors);
  /// Throws Error that names the tensor's number if one was changed since the construction.
  void verify() const;

 private:
  std::vector<torch::Tensor> tensors_;
  std::vector<std::int64_t> versions_;
};

/// Keeps what must not change while a forward is computed a second time: the batch counters of
/// batch norm layers.
class BatchCounters {
 public:
  /// Takes the buffers of that name among those given.
  BatchCounters() = default;
  explicit BatchCounters(std::vector<torch::Tensor> counters);
  void save();
  void restore() const;

 private:
  std::vector<torch::Tensor> counters_, saved_;
};

}  // namespace lockstep
