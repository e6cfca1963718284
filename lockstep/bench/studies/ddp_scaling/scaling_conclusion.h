#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/ddp_scaling/scaling_cells.h"

namespace lockstep::bench {

/// Says in plain sentences what a second place, another launcher and a second node gave, and how
/// sure that is; only of cells whose places had cores of their own.
std::string scaling_conclusion(const std::vector<ScalingCell>& cells);

}  // namespace lockstep::bench
