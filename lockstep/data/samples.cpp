#include "lockstep/data/samples.h"

#include <limits>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"

namespace lockstep::data {

void check_index(std::int64_t index, std::int64_t size) {
  check(0 <= index && index < size, "loader: index out of range: ", index, " of ", size);
}

SamplesPointer Samples::within(std::span<const std::int64_t> /*indices*/) const { return nullptr; }

std::optional<std::int64_t> Samples::label(std::int64_t /*index*/) const { return std::nullopt; }

StoredImage Samples::stored(std::int64_t /*index*/) const { return {}; }

BatchForm form_of(const Samples& set) {
  return {.shape = set.shape(), .inputs = set.inputs(), .targets = set.targets()};
}

void SingleSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  const auto elements = static_cast<std::size_t>(shape().elements());
  const auto planes = planes_of(out.input(), std::ssize(keys), shape());
  auto* targets = out.target().data_ptr<std::int64_t>();
  const bool is_float = out.input().scalar_type() == torch::kFloat;
  if (is_float && planes == 1) {
    auto* floats = out.input().data_ptr<float>();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      targets[i] = read_named(keys[i], {floats + i * elements, elements});
    }
    return;
  }
  std::vector<float> pixels(elements);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    targets[i] = read_named(keys[i], pixels);
    const std::span<const float> image = pixels;
    if (is_float) copy_planes(image, planes, out.input().data_ptr<float>() + i * elements);
    if (!is_float)
      copy_planes(image, planes, out.input().data_ptr<torch::BFloat16>() + i * elements);
  }
}

std::int64_t SingleSamples::read_named(const SampleKey& key, std::span<float> out) const {
  check_index(key.index, size());
  try {
    return read_one(key, out);
  } catch (const DataError& error) {
    const std::string text = error.what(), sample = name(key.index);
    if (text.find(sample) != std::string::npos) throw;
    throw DataError(concat("loader: ", sample, ": ", text));
  }
}

SampleSubset::SampleSubset(SamplesPointer set, std::vector<std::int64_t> indices)
    : set_(std::move(set)), indices_(std::move(indices)) {
  check(!indices_.empty(), "SampleSubset: a part of a set must not be empty");
  for (const std::int64_t index : indices_) check_index(index, set_->size());
  if (auto part = set_->within(indices_)) set_ = std::move(part);
}

SamplesPointer SampleSubset::within(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> mapped;
  for (const std::int64_t index : indices) mapped.push_back(of_set(index));
  const auto part = set_->within(mapped);
  return part ? std::make_shared<SampleSubset>(part, indices_) : nullptr;
}

std::int64_t SampleSubset::of_set(std::int64_t index) const {
  check_index(index, size());
  return indices_[static_cast<std::size_t>(index)];
}

void SampleSubset::read(std::span<const SampleKey> keys, const Batch& out) const {
  std::vector<SampleKey> mapped(keys.begin(), keys.end());
  for (SampleKey& key : mapped) key.index = of_set(key.index);
  set_->read(mapped, out);
}

RepeatedSamples::RepeatedSamples(SamplesPointer set, std::int64_t times)
    : set_(std::move(set)), times_(times) {
  check(1 <= times && times <= std::numeric_limits<std::int64_t>::max() / set_->size(),
      "RepeatedSamples: a set is repeated at least once, and its size must not overflow: ", times,
      " times");
}

SamplesPointer RepeatedSamples::within(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> mapped;
  for (const std::int64_t index : indices) mapped.push_back(index % set_->size());
  const auto part = set_->within(mapped);
  return part ? std::make_shared<RepeatedSamples>(part, times_) : nullptr;
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
