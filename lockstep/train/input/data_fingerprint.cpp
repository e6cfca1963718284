#include "lockstep/train/input/data_fingerprint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <ATen/ops/tensor.h>

#include "lockstep/train/state/parameters_hash.h"

namespace lockstep {
namespace {

constexpr std::int64_t kImages = 16;
constexpr std::int64_t kNames = 1000;

// Evenly over the set, the first and the last among them.
std::vector<std::int64_t> some_of(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> indices;
  const std::int64_t count = std::min(size, most);
  for (std::int64_t i = 0; i < count; ++i)
    indices.push_back(count > 1 ? i * (size - 1) / (count - 1) : 0);
  return indices;
}

torch::Tensor images_of(const data::Samples& set) {
  std::vector<data::SampleKey> keys;
  for (const std::int64_t index : some_of(set.size(), kImages)) keys.push_back({.index = index});
  const Batch batch = data::empty_batch(std::ssize(keys), {.shape = set.shape()});
  set.read(keys, batch);
  return batch.data;
}

// Without the folder, which may have been moved.
torch::Tensor names_of(const data::Samples& set) {
  std::string text;
  for (const std::int64_t index : some_of(set.size(), kNames))
    text += std::filesystem::path(set.name(index)).filename().string() + '\n';
  return at::tensor(std::vector<std::uint8_t>(text.begin(), text.end()));
}

}  // namespace

std::string data_fingerprint(const DatasetSource& source) {
  const data::Samples& set = *source.unaugmented;
  const torch::Tensor content = source.folders.empty() ? images_of(set) : names_of(set);
  char text[20];
  std::snprintf(
      text, sizeof text, "%016llx",
      static_cast<unsigned long long>(
          parameters_hash({at::tensor(source.labels, torch::kLong), content})));
  return text;
}

}  // namespace lockstep
