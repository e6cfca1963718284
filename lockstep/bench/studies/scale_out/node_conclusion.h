#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/scale_out/node_cells.h"

namespace lockstep::bench::scale_out {

/// Answers whether more nodes paid in the same time, by how much and how sure that is; remarks on
/// the loss and a killed worker. Only of cells whose nodes had cores of their own.
page::Conclusion node_conclusion(const std::vector<NodeCell>& cells);

}  // namespace lockstep::bench::scale_out
