#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The shape and range of the numbers of a sample, for a contact sheet.
struct SheetNumbers {
  std::array<std::int64_t, 3> shape = {};  ///< channels, height, width
  double least = 0, mean = 0, most = 0;    ///< not a number where one of them is none
  std::vector<float> first = {};           ///< a few, channels together
};

/// Returns whether samples of this shape (channels, height, width) can be looked at: grey or in
/// colour, and more than a line.
bool is_pictured(const std::array<std::int64_t, 3>& shape);

/// Looks at the numbers of a sample, of which there is at least one.
SheetNumbers numbers_of_sample(
    std::span<const float> numbers, const std::array<std::int64_t, 3>& shape);

/// Spreads numbers that no pixels from 0 to 1 gave from black to white; returns whether it did.
bool spread_beyond_pixels(std::span<float> numbers);

}  // namespace lockstep
