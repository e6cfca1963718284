#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/pipeline/pipeline_cells.h"

namespace lockstep::bench {

/// Answers whether cutting the net paid, at which split size, by how much and how sure that is;
/// remarks on schedules and memory. Only of cells whose places had cores of their own.
page::Conclusion pipeline_conclusion(const std::vector<PipelineCell>& cells);

}  // namespace lockstep::bench
