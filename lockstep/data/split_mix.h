#pragma once

#include <cstdint>

namespace lockstep::data {

/// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood, 2014).
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    return mix(state_);
  }

  /// Draws a number of [first, last], which must lie closer together than 2^32.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    const auto count = static_cast<std::uint64_t>(last - first + 1);
    return first + static_cast<std::int64_t>((next() >> 32) * count >> 32);
  }

  /// Turns a number into another one of which every bit depends on all of its bits.
  static std::uint64_t mix(std::uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::data
