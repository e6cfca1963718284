#pragma once

#include <string>
#include <vector>

namespace lockstep::plot {

/// The part of an axis that is shown.
struct Range {
  double low = 0;
  double high = 1;
  bool operator==(const Range&) const = default;
};

/// Returns the multiples of a nice step inside a range, at most `most` + 1 of them: of the smallest
/// of 1, 2, 5 times a power of ten that cuts it into at most `most` steps.
std::vector<double> linear_ticks(Range range, int most);

/// Returns ticks of a logarithmic axis inside a range: 1, 2 and 5 times the powers of ten if these
/// are at most `most`, or the powers alone, or every second, third ... of them.
std::vector<double> logarithmic_ticks(Range range, int most);

/// Returns powers of two inside a range, at most `most`: all, every second, fifth, tenth ...
std::vector<double> logarithmic_byte_ticks(Range range, int most);

/// Returns multiples of a nice step, counted in KiB or MiB where the range reaches there.
std::vector<double> linear_byte_ticks(Range range, int most);

/// Widens a range to whole or half nice steps, as linear_ticks() has them.
Range nice_range(Range range, int most);

/// Widens a range as nice_range() does, but counts in KiB or MiB where it reaches there.
Range nice_byte_range(Range range, int most);

/// Widens a range to powers of two; to a factor of at least two.
Range nice_logarithmic_byte_range(Range range);

/// Widens a range to 1, 2 or 5 times powers of ten; to a factor of at least two.
Range nice_logarithmic_range(Range range);

/// Writes the ticks of an axis all in one manner: as many digits as tell them apart, thousands
/// separated by commas, a real minus; as 2×10⁶ where plain digits would be too many.
std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool logarithmic = false);

/// Writes sizes in bytes, as in "64 KiB".
std::vector<std::string> byte_texts(const std::vector<double>& ticks);

/// Writes one value with four digits that count.
std::string value_text(double value);

/// Writes a number of pixels with two digits at most, whatever the locale.
std::string coordinate(double pixels);

}  // namespace lockstep::plot
