#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_cells.h"

namespace lockstep::bench {

/// Sets the seconds of ten epochs as published, as measured here and as predicted.
page::Table run_time_table(const std::vector<ScalingCell>& cells);

/// Sets how many times as fast as one place each cell is, published, here and predicted.
page::Table scaling_speed_up_table(const std::vector<ScalingCell>& cells);

/// Sets first and later epochs, and what a launcher costs besides.
page::Table scaling_epoch_table(const std::vector<ScalingCell>& cells);

/// Says what a reader must know of a cell's numbers; `-` if nothing.
std::string scaling_note(const ScalingCell& cell);

}  // namespace lockstep::bench
