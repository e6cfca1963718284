#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/data_parallel/epoch_cells.h"

namespace lockstep::bench {

/// Says what a reader must know of a cell's numbers, or why there are none; `-` if nothing.
std::string note_of(const EpochCell& cell);

/// Sets first and second epoch of each cell beside the published ones.
page::Table epoch_table(const std::vector<EpochCell>& cells);

/// Sets loss, accuracy and rate of each cell.
page::Table learning_table(const std::vector<EpochCell>& cells);

/// Sets how many times as fast as one place each cell with several is.
page::Table speed_up_table(const std::vector<EpochCell>& cells);

/// Sets dp beside ddp, where both have as many places.
page::Table dp_or_ddp_table(const std::vector<EpochCell>& cells);

}  // namespace lockstep::bench
