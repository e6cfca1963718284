#pragma once

#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/studies/collectives/collective_panels.h"

namespace lockstep::bench {

/// Sets the times of calls by size and way beside what a copy predicts, the two bandwidths, how
/// many times as fast as Gloo each way is, and the times of the smallest message.
std::vector<page::Table> collective_tables(const std::vector<CollectivePanel>& panels);

}  // namespace lockstep::bench
