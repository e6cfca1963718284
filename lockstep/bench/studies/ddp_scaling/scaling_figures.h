#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_cells.h"

namespace lockstep::bench {

/// Draws the study's pictures: run times, and speed-ups beside the published ones.
std::vector<plot::Figure> scaling_figures(const std::vector<ScalingCell>& cells);

}  // namespace lockstep::bench
