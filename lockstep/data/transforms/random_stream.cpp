#include "lockstep/data/transforms/random_stream.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"
#include "lockstep/data/split_mix.h"

namespace lockstep::data {
namespace {

// Spreads every bit over all.
std::uint64_t mixed(std::uint64_t x) { return SplitMix(x).next(); }

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

std::array<std::uint32_t, 2> key_of(const SampleKey& key, Draw draw) {
  const auto epoch = static_cast<std::uint64_t>(key.epoch);
  const auto all = mixed(mixed(mixed(key.seed) ^ epoch) ^ static_cast<std::uint64_t>(draw));
  return {low(all), high(all)};
}

std::array<std::uint32_t, 4> counter_of(const SampleKey& key) {
  const auto index = static_cast<std::uint64_t>(key.index);
  return {0, 0, low(index), high(index)};
}

}  // namespace

std::array<std::uint32_t, 4> philox(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1],
        low(first)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

RandomStream::RandomStream(const SampleKey& key, Draw draw)
    : key_(key_of(key, draw)), counter_(counter_of(key)) {}

std::uint32_t RandomStream::bits() {
  if (used_ == block_.size()) {
    block_ = philox(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

double RandomStream::uniform() {
  const std::uint64_t first = bits();
  return static_cast<double>((first << 32 | bits()) >> 11) * 0x1p-53;
}

std::int64_t RandomStream::integer(std::int64_t lowest, std::int64_t highest) {
  check(lowest <= highest && highest - lowest < (std::int64_t{1} << 32),
      "RandomStream: no such range of whole numbers: ", lowest, " to ", highest);
  // The multiplication maps 2^32 words on `range` numbers; the rejected ones would make some of
  // them likelier (Lemire, Fast random integer generation in an interval, 2019).
  const auto range = static_cast<std::uint64_t>(highest - lowest) + 1;
  std::uint64_t product = bits() * range;
  while (low(product) < (std::uint64_t{1} << 32) % range) product = bits() * range;
  return lowest + high(product);
}

double RandomStream::normal(double mean, double deviation) {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return mean + deviation * radius * std::cos(2 * std::numbers::pi * uniform());
}

void RandomStream::skip_blocks(std::size_t blocks) {
  const std::uint64_t at = (std::uint64_t{counter_[1]} << 32 | counter_[0]) + blocks;
  counter_[0] = low(at);
  counter_[1] = high(at);
  used_ = block_.size();
}

void RandomStream::fill_normal(std::span<float> numbers) {
  while (!numbers.empty()) {
    const NormalNumbers drawn = normal_numbers(counter_, key_);
    const std::size_t count = std::min(numbers.size(), drawn.size());
    std::copy_n(drawn.begin(), count, numbers.begin());
    numbers = numbers.subspan(count);
    skip_blocks((count + 3) / 4);
  }
}

}  // namespace lockstep::data
