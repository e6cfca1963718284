#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/report/plot/axis.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/legend.h"
#include "lockstep/report/plot/text_width.h"

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

/// The width of every picture, in pixels of its own, and the height of what is inside the axes.
constexpr double kWidth = 720;
constexpr double kPlotHeight = 290;

/// A line of text in the picture.
struct PlacedText {
  enum class Anchor { kStart, kMiddle, kEnd };

  std::string text;
  double x = 0;  ///< of the anchor
  double y = 0;  ///< of the baseline
  Anchor anchor = Anchor::kStart;
  TextSize size = {};
  bool muted = false;
  bool upright = false;  ///< turned by 90 degrees against the clock around the anchor
};

/// A picture with all places: what remains is to draw it.
struct Layout {
  double height = 0;
  double left = 0;  ///< sides of what is inside the axes
  double right = 0;
  double top = 0;
  double bottom = 0;
  PlacedAxis x;
  PlacedAxis y;
  Legend legend;
  std::vector<Bar> bars;
  std::vector<PlacedText> texts;
};

/// Returns everything of a figure that has passed check_figure() its place; no two texts overlap.
Layout lay_out(const Figure& figure);

}  // namespace lockstep::bench::plot
