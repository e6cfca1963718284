#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/throughput/throughput_ratios.h"

namespace lockstep::bench {

/// Says what a reader must know of a cell's number, or why there is none; `-` if nothing.
std::string note_of(const ThroughputCell& cell);

/// Sets milliseconds a sample: here, predicted, published.
page::Table sample_cost_table(const std::vector<ThroughputCell>& cells);

/// Sets the ratios: here, predicted, published.
page::Table throughput_ratio_table(const std::vector<ThroughputCell>& cells);

/// Sets dp beside ddp, where both have the same work.
page::Table throughput_way_table(const std::vector<ThroughputCell>& cells);

}  // namespace lockstep::bench
