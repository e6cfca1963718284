#pragma once

#include <vector>

#include "lockstep/data/samples.h"

namespace lockstep::data {

/// Gives some samples of a set in an order of their own: a part of a split.
class SampleSubset final : public Samples {
 public:
  /// An index outside of the set, or none at all, is an InvalidArgument.
  SampleSubset(SamplesPointer set, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return std::ssize(indices_); }
  std::int64_t classes() const override { return set_->classes(); }
  ImageShape shape() const override { return set_->shape(); }
  std::string name(std::int64_t index) const override { return set_->name(stored(index)); }
  void read(std::span<const SampleKey> keys, const Batch& out) const override;

 private:
  std::int64_t stored(std::int64_t index) const;

  SamplesPointer set_;
  std::vector<std::int64_t> indices_;
};

/// Gives a set several times over; each time counts as an epoch of its own, so a transform draws
/// anew.
class RepeatedSamples final : public Samples {
 public:
  RepeatedSamples(SamplesPointer set, std::int64_t times);

  std::int64_t size() const override { return set_->size() * times_; }
  std::int64_t classes() const override { return set_->classes(); }
  ImageShape shape() const override { return set_->shape(); }
  std::string name(std::int64_t index) const override { return set_->name(index % set_->size()); }
  void read(std::span<const SampleKey> keys, const Batch& out) const override;

 private:
  SamplesPointer set_;
  std::int64_t times_;
};

}  // namespace lockstep::data
