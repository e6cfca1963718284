#pragma once

#include <string>
#include <vector>

#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {

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

/// Returns what a horizontal axis of numbers must show: all values and a margin of 4 % on each
/// side.
Range x_range(const Figure& figure);

/// Places the vertical axis between two heights.
PlacedAxis y_axis(const Figure& figure, double bottom, double top);

/// Places the horizontal axis between two sides. Ticks are the values themselves if they are few
/// and their labels do not collide, nice numbers otherwise, or the categories, whose labels are
/// set in lines, or upright where words do not fit.
PlacedAxis x_axis(const Figure& figure, double left, double right);

/// Returns the width of the widest label.
double widest_label(const PlacedAxis& axis);

/// Returns the size of the labels at the ticks, in pixels, and the distance of their lines.
constexpr double kTickSize = 12;
constexpr double kTickLine = 14;

}  // namespace lockstep::bench::plot
