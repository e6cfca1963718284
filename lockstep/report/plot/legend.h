#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/report/plot/axis.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench::plot {

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

/// Places the name of each line beside its last point, in a margin right of the plot whose width is
/// the legend's size. Nothing where a name would be far from its line: lines that end elsewhere or
/// too near to each other, long names, many series, bars. The heights are those of `scale`.
std::optional<Legend> end_labels(const Figure& figure, const Scale& scale);

/// Places all names in rows and columns of a box from `left` to `right` whose top is 0.
Legend legend_rows(const Figure& figure, double left, double right);

/// Returns the width of the sign before a name.
constexpr double kSignWidth = 26;
constexpr double kSignGap = 6;

}  // namespace lockstep::bench::plot
