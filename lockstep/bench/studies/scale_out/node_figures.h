#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/scale_out/node_cells.h"

namespace lockstep::bench::scale_out {

/// Draws the study's two graphs, training and validation loss over time for each number of nodes,
/// and the efficiency over nodes.
std::vector<plot::Figure> node_figures(const std::vector<NodeCell>& cells);

}  // namespace lockstep::bench::scale_out
