#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/pipeline/pipeline_cells.h"

namespace lockstep::bench {

/// Draws the study's three figures, and what it lacks: the schedules beside each other with the
/// bound of their bubbles, at one split size and, where they were measured, over all; and the
/// memory.
std::vector<plot::Figure> pipeline_figures(const std::vector<PipelineCell>& cells);

}  // namespace lockstep::bench
