#pragma once

#include <string>
#include <vector>

namespace lockstep::bench::plot {

/// Writes the ticks of an axis all in one manner: as many digits as tell them apart, thousands
/// separated by commas, a real minus; as 2×10⁶ where plain digits would be too many.
std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool logarithmic = false);

/// Writes sizes in bytes, as in "64 KiB".
std::vector<std::string> byte_texts(const std::vector<double>& ticks);

/// Writes one value with four digits that count.
std::string value_text(double value);

/// Writes a number of pixels with two digits at most, whatever the locale.
std::string coordinate(double pixels);

}  // namespace lockstep::bench::plot
