#pragma once

#include <string>

#include "lockstep/bench/plot/figure.h"

namespace lockstep::bench::plot {

/// Draws a figure as one `<svg>` element, which is a file of its own and fits into an HTML page as
/// it is: 720 wide and scalable, as high as its texts need, light or dark as the reader prefers,
/// without scripts or links. A figure without points says so in the picture. Throws as
/// check_figure() does.
std::string to_svg(const Figure& figure);

}  // namespace lockstep::bench::plot
