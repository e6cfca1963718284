#include "lockstep/data/sample_view.h"

#include <limits>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::data {

SampleSubset::SampleSubset(SamplesPointer set, std::vector<std::int64_t> indices)
    : set_(std::move(set)), indices_(std::move(indices)) {
  check(!indices_.empty(), "SampleSubset: a part of a set must not be empty");
  for (const std::int64_t index : indices_) check_index(index, set_->size());
}

std::int64_t SampleSubset::stored(std::int64_t index) const {
  check_index(index, size());
  return indices_[static_cast<std::size_t>(index)];
}

void SampleSubset::read(std::span<const SampleKey> keys, const Batch& out) const {
  std::vector<SampleKey> mapped(keys.begin(), keys.end());
  for (SampleKey& key : mapped) key.index = stored(key.index);
  set_->read(mapped, out);
}

RepeatedSamples::RepeatedSamples(SamplesPointer set, std::int64_t times)
    : set_(std::move(set)), times_(times) {
  check(
      1 <= times && times <= std::numeric_limits<std::int64_t>::max() / set_->size(),
      "RepeatedSamples: a set is repeated at least once and must stay countable: ", times,
      " times");
}

void RepeatedSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  std::vector<SampleKey> mapped(keys.begin(), keys.end());
  for (SampleKey& key : mapped) {
    check_index(key.index, size());
    key.epoch = key.epoch * times_ + key.index / set_->size();
    key.index %= set_->size();
  }
  set_->read(mapped, out);
}

}  // namespace lockstep::data
