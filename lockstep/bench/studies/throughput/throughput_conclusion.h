#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/throughput/throughput_cells.h"

namespace lockstep::bench {

/// Answers what a sample cost in which way, by how much less, and how sure that is; only of cells
/// whose places had cores of their own.
page::Conclusion throughput_conclusion(const std::vector<ThroughputCell>& cells);

}  // namespace lockstep::bench
