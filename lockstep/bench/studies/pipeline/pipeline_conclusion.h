#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/pipeline/pipeline_cells.h"

namespace lockstep::bench {

/// Says in plain sentences whether cutting the net paid, at which split size, by which schedule, by
/// how much and how sure that is; only of cells whose places had cores of their own.
std::string pipeline_conclusion(const std::vector<PipelineCell>& cells);

}  // namespace lockstep::bench
