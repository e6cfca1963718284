#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/data_parallel/epoch_cells.h"

namespace lockstep::bench {

/// Says in plain sentences which way paid, by how much and how sure that is; only of cells whose
/// places had cores of their own.
std::string epoch_conclusion(const std::vector<EpochCell>& cells);

}  // namespace lockstep::bench
