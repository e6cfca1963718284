#pragma once

#include <string>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/plot/layout.h"

namespace lockstep::bench::plot {

/// Draws bars, lines, intervals and markers of all series as SVG; each mark shows its value when
/// pointed at.
std::string draw_series(const Figure& figure, const Layout& layout);

/// Draws the signs of the legend, without names.
std::string draw_legend(const Figure& figure, const Legend& legend);

/// Defines the hatches of a figure's bars.
std::string hatch_definitions(const Figure& figure);

/// Describes a point, as in "ddp, 2: 5.6 (5.4 to 5.9)".
std::string point_text(const Figure& figure, const Series& series, const Point& point);

}  // namespace lockstep::bench::plot
