#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/collectives/sweep_line.h"

namespace lockstep::bench {

/// Sets results for a terminal: a row for each collective, backend and size.
std::string sweep_table(const std::vector<SweepLine>& lines);

}  // namespace lockstep::bench
