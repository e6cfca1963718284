#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/throughput/throughput_cells.h"

namespace lockstep::bench {

/// Says in plain sentences what a sample cost in which way, by how much less, and how sure that is;
/// only of cells whose places had cores of their own.
std::string throughput_conclusion(const std::vector<ThroughputCell>& cells);

}  // namespace lockstep::bench
