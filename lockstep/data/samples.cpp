#include "lockstep/data/samples.h"

#include <algorithm>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {

void check_index(std::int64_t index, std::int64_t size) {
  check(0 <= index && index < size, "loader: index out of range: ", index, " of ", size);
}

void SingleSamples::read(std::span<const SampleKey> keys, const Batch& out) const {
  const auto elements = static_cast<std::size_t>(shape().elements());
  auto* targets = out.target.data_ptr<std::int64_t>();
  if (out.data.scalar_type() == torch::kFloat) {
    auto* floats = out.data.data_ptr<float>();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      targets[i] = read_named(keys[i], {floats + i * elements, elements});
    }
    return;
  }
  auto* shorts = out.data.data_ptr<torch::BFloat16>();
  std::vector<float> floats(elements);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    targets[i] = read_named(keys[i], floats);
    std::copy(floats.begin(), floats.end(), shorts + i * elements);
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

}  // namespace lockstep::data
