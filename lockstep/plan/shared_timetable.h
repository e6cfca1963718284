#pragma once

#include <functional>
#include <vector>

#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep::plan {

/// Returns how many times as long an action takes while so many ranks compute, itself included.
using Slowdown = std::function<double(int active)>;

/// Computes when each action of a schedule happens where ranks slow each other down while they
/// compute at the same time: each takes its cost of a rank alone, at a speed that changes whenever
/// another one begins or ends. With a slowdown of 1 the times are those of simulate_stages().
///
/// Transfers take their time whatever the ranks do. Throws InvalidArgument as simulate_stages, and
/// for a schedule that holds transfers of its own.
Timetable shared_timetable(
    const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown);

/// Returns when each of some tasks that begin together ends, in seconds from then; the costs are
/// those of a task alone, in seconds.
std::vector<double> shared_seconds(const std::vector<double>& costs, const Slowdown& slowdown);

}  // namespace lockstep::plan
