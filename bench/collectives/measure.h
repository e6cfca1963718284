#pragma once

#include <functional>
#include <vector>

#include "bench/collectives/sweep.h"
#include "bench/collectives/sweep_line.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::bench {

/// Measures a sweep over the groups of one world, as every rank of it calls this: a line for each
/// collective, size and group, the same on all ranks. `tell` has each line as soon as it is there.
///
/// A repeat is some calls in a row after a barrier, as many as take about two milliseconds; its
/// value is the time of one call of the slowest rank. Repeats of the groups, and of copying as many
/// bytes within memory, take turns, so that whatever disturbs the machine meets all alike. Throws
/// Error for a wrong result, and what collectives throw.
std::vector<SweepLine> measure(const Sweep& sweep, const std::vector<ProcessGroup>& groups,
    const std::function<void(const SweepLine&)>& tell = {});

}  // namespace lockstep::bench
