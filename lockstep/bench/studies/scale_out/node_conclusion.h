#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/studies/scale_out/node_cells.h"

namespace lockstep::bench::scale_out {

/// Says in plain sentences whether more nodes paid in the same time, by how much, how sure that is,
/// and what a killed worker cost; only of cells whose nodes had cores of their own.
std::string node_conclusion(const std::vector<NodeCell>& cells);

}  // namespace lockstep::bench::scale_out
