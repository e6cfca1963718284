#pragma once

#include <vector>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/studies/data_parallel/epoch_cells.h"

namespace lockstep::bench {

/// Draws, for each model and repeat: first and second epoch over places, the speed-up over places,
/// and dp against ddp.
std::vector<plot::Figure> epoch_figures(const std::vector<EpochCell>& cells);

}  // namespace lockstep::bench
