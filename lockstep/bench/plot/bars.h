#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/bench/plot/axis.h"
#include "lockstep/bench/plot/figure.h"

namespace lockstep::bench::plot {

/// One bar with its place, and what is written at its end, if there is room for that.
struct Bar {
  std::size_t series = 0;  ///< index in the figure
  std::size_t point = 0;   ///< index in the series
  double left = 0;
  double right = 0;
  double end = 0;   ///< height of its value
  double base = 0;  ///< height of zero
  std::string value = "";
  double value_y = 0;  ///< baseline of the value's text
};

/// Returns the size of the values at the ends of bars, in pixels.
constexpr double kValueSize = 11;

/// Places bars side by side in the four fifths in the middle of their category, at most 56 wide.
/// Values are written if all of them fit and nothing but bars is in the figure.
std::vector<Bar> place_bars(const Figure& figure, const Scale& x, const Scale& y);

}  // namespace lockstep::bench::plot
