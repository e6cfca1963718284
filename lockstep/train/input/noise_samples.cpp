#include "lockstep/train/input/noise_samples.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/data/pattern.h"

namespace lockstep {
namespace {

using data::SyntheticStream;

SyntheticStream stream_of(const data::SampleKey& key) {
  const auto epoch = SyntheticStream::mix(key.seed) + static_cast<std::uint64_t>(key.epoch);
  return SyntheticStream(SyntheticStream::mix(epoch) + static_cast<std::uint64_t>(key.index));
}

// Sixteen bits as a number between the roots of 3, where an even distribution has variance 1.
float number_of(std::uint64_t bits) {
  constexpr float kRootOfThree = 1.7320508F;
  constexpr float kStep = 2 * kRootOfThree / 65536;
  return (static_cast<float>(bits & 0xffffU) + 0.5F) * kStep - kRootOfThree;
}

}  // namespace

std::string NoiseSamples::name(std::int64_t index) const { return concat("mock ", index); }

std::int64_t NoiseSamples::read_one(const data::SampleKey& key, std::span<float> out) const {
  constexpr std::size_t kNumbers = 4;  // of 64 bits
  SyntheticStream stream = stream_of(key);
  const std::int64_t drawn = stream.between(0, options_.classes - 1);
  for (std::size_t i = 0; i < out.size(); i += kNumbers) {
    std::uint64_t bits = stream.next();
    for (float& number : out.subspan(i, std::min(kNumbers, out.size() - i))) {
      number = number_of(bits);
      bits >>= 16;
    }
  }
  return options_.constant ? 0 : drawn;
}

}  // namespace lockstep
