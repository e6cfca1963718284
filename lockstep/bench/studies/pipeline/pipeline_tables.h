#pragma once

#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/pipeline/pipeline_cells.h"

namespace lockstep::bench {

/// Sets the seconds of a run in each cell beside what its bubble predicts.
page::Table run_time_table(const std::vector<PipelineCell>& cells);

/// Sets how many times as fast as a single place each cell is beside the bound of its bubble.
page::Table pipeline_speed_up_table(const std::vector<PipelineCell>& cells);

/// Sets the peak of the memory of each cell's process.
page::Table pipeline_memory_table(const std::vector<PipelineCell>& cells);

}  // namespace lockstep::bench
