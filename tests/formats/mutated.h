#pragma once

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::testing {

/// Changes, removes, adds or copies a few bytes; half of the changes hit the front, where headers
/// are.
inline std::vector<std::uint8_t> mutated(
    std::vector<std::uint8_t> bytes, std::size_t front, std::mt19937& engine) {
  constexpr std::uint8_t kTelling[] = {
      0, 1, 2, 3, 4, 8, 16, 0x1f, 0x7f, 0x80, 0x8b, 0xd8, 0xd9, 0xda, 0xff};
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(engine);
  };
  for (std::size_t changes = 1 + below(3); changes > 0 && !bytes.empty(); --changes) {
    const auto at = static_cast<std::ptrdiff_t>(
        below(below(2) == 0 ? std::min(bytes.size(), front) : bytes.size()));
    const auto place = bytes.begin() + at;
    switch (below(6)) {
      case 0:
        *place = static_cast<std::uint8_t>(engine());
        break;
      case 1:
        *place = kTelling[below(std::size(kTelling))];
        break;
      case 2:
        *place = static_cast<std::uint8_t>(*place ^ (1U << below(8)));
        break;
      case 3:
        bytes.erase(place);
        break;
      case 4:
        bytes.insert(place, static_cast<std::uint8_t>(engine()));
        break;
      default:
        if (below(4) == 0) bytes.resize(static_cast<std::size_t>(at));
        break;
    }
  }
  return bytes;
}

/// Returns the bytes of the largest `new` of this thread since the last call; this test program
/// counts them all.
std::size_t take_largest_allocation();

/// Returns what a reader makes of a file, or nothing if it refuses it with a DataError; none of its
/// allocations may be above `most` bytes.
template <typename Read>
std::optional<std::invoke_result_t<Read>> read_within(std::size_t most, const Read& read) {
  std::optional<std::invoke_result_t<Read>> result;
  take_largest_allocation();
  try {
    result = read();
  } catch (const DataError&) {
  }
  EXPECT_LE(take_largest_allocation(), most);
  return result;
}

}  // namespace lockstep::testing
