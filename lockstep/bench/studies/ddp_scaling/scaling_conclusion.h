#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_cells.h"

namespace lockstep::bench {

/// Answers what a second place gave on one node and on two, and how sure that is; remarks on
/// another launcher and the network. Only of cells whose places had cores of their own.
page::Conclusion scaling_conclusion(const std::vector<ScalingCell>& cells);

}  // namespace lockstep::bench
