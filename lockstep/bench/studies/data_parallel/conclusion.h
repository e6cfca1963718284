#pragma once

#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/data_parallel/epoch_cells.h"

namespace lockstep::bench {

/// Answers which way paid, by how much and how sure that is; only of cells whose places had cores
/// of their own.
page::Conclusion epoch_conclusion(const std::vector<EpochCell>& cells);

}  // namespace lockstep::bench
