#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The shape and range of the numbers of a sample, or of one of its inputs, for a contact sheet.
struct SheetNumbers {
  std::string input = {};                ///< its name, where the set names them
  std::vector<std::int64_t> shape = {};  ///< channels, height, width, or as the set says
  double least = 0, mean = 0, most = 0;  ///< not a number where one of them is none
  std::vector<double> first = {};        ///< a few, channels together, or row by row
};

/// Returns whether samples of this shape (channels, height, width) can be looked at: grey or in
/// colour, and more than a line.
bool is_pictured(const std::vector<std::int64_t>& shape);

/// Looks at numbers, of which there is at least one.
SheetNumbers numbers_of_sample(
    std::span<const double> numbers, const std::vector<std::int64_t>& shape);

/// Spreads numbers that no pixels from 0 to 1 gave from black to white; returns whether it did.
bool spread_beyond_pixels(std::span<float> numbers);

}  // namespace lockstep
