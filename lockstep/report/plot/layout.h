#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/svg.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {

/// The map from values of an axis to places in the picture, in pixels.
struct Scale {
  Range range;
  bool logarithmic = false;
  double from = 0;  ///< where range.low is
  double to = 1;    ///< where range.high is

  double place(double value) const;
};

/// A tick with its label, which may have several lines.
struct Tick {
  double place = 0;
  std::vector<std::string> lines;
};

/// An axis with places.
struct PlacedAxis {
  Scale scale;
  std::vector<Tick> ticks;
  bool upright = false;  ///< the labels run from the bottom to the top
};

/// Returns what a vertical axis must show: all values and intervals; zero, too, where there are
/// bars or where the values reach down to 70 % of the largest; whole steps. Room for values above
/// bars.
Range y_range(const Figure& figure);

/// The name of a series with the place of its sign, a piece of its line or bar.
struct LegendEntry {
  std::size_t series = 0;  ///< index in the figure
  double x = 0;            ///< left side of the sign
  double y = 0;            ///< middle of the first line of text
  std::vector<std::string> lines;
};

/// All names, with the height or the width that they take away from the picture.
struct Legend {
  std::vector<LegendEntry> entries;
  double size = 0;
};

/// Moves heights apart until neighbours are `gap` from each other and all are within a range, each
/// as little as the others allow: neighbours that collide move by equal parts. The order is kept.
/// Nothing if there is no room.
std::optional<std::vector<double>> spread(
    const std::vector<double>& wanted, double gap, Range within);

/// The width of the sign before a name.
constexpr double kSignWidth = 26;

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

/// The width of every picture, in pixels of its own.
constexpr double kWidth = 720;

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

}  // namespace lockstep::plot
