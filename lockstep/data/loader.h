#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/gather.h"

namespace lockstep {

/// Is what a step computes with: images [batch, channels, height, width] in NHWC memory, classes
/// [batch] as int64.
struct Batch {
  torch::Tensor data;
  torch::Tensor target;
};

/// Says what the batches of a Loader look like.
struct LoaderOptions {
  torch::ScalarType dtype = torch::kFloat;  ///< or kBFloat16
  bool drop_last = false;                   ///< leave out a last batch that is not full
  data::Normalization normalization = {};
};

/// Cuts indices into batches and gathers them from memory, in the caller's thread.
///
/// The memory of a batch is used again for the next one unless someone still holds it or a view of
/// it.
///
///     for (auto& batch : lockstep::Loader(digits, sampler.epoch(epoch), 64)) train(batch.data,
///     batch.target);
class Loader {
 public:
  class Iterator;

  /// An index outside of the data set is an InvalidArgument when its batch is gathered.
  Loader(
      data::InMemoryImages images,
      std::vector<std::int64_t> indices,
      std::int64_t batch_size,
      const LoaderOptions& options = {});

  /// Counts the batches.
  std::int64_t size() const;

  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  std::span<const std::int64_t> indices_of(std::int64_t batch) const;
  bool can_be_reused(const Batch& batch, std::int64_t size) const;
  void gather_into(Batch& batch, std::int64_t number) const;

  data::InMemoryImages images_;
  std::vector<std::int64_t> indices_;
  std::int64_t batch_size_;
  torch::ScalarType dtype_;
  bool drop_last_;
  data::PixelScale scale_;
};

/// Walks over the batches of a Loader, which must outlive it; holds the current one.
class Loader::Iterator {
 public:
  using difference_type = std::int64_t;
  using value_type = Batch;

  explicit Iterator(const Loader& loader);

  Batch& operator*() { return batch_; }
  Batch* operator->() { return &batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return number_ == loader_->size(); }

 private:
  const Loader* loader_;
  std::int64_t number_ = 0;
  Batch batch_;
};

}  // namespace lockstep
