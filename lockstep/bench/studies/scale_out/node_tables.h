#pragma once

#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/scale_out/node_cells.h"

namespace lockstep::bench::scale_out {

/// Sets the study's own table, row by row, with what was published beside each number of nodes.
page::Table study_table(const std::vector<NodeCell>& cells);

/// Sets epoch time and efficiency with their intervals beside the predicted and the published ones.
page::Table efficiency_table(const std::vector<NodeCell>& cells);

/// Sets the run in which a worker was killed beside the same one in which none was.
page::Table survival_table(const std::vector<NodeCell>& cells);

}  // namespace lockstep::bench::scale_out
