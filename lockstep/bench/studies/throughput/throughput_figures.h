#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/throughput/throughput_cells.h"

namespace lockstep::bench {

/// Draws milliseconds a sample of each cell with whole images beside what is predicted, and the
/// study's ratios: here, predicted, published.
std::vector<plot::Figure> throughput_figures(const std::vector<ThroughputCell>& cells);

}  // namespace lockstep::bench
