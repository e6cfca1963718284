#pragma once

#include "lockstep/bench/planning/profile_of_runs.h"

namespace lockstep::bench {

/// Adds to a profile, which has all the rest, what ways cost beyond what is predicted of them with
/// it: overheads, and the cost of sharing cores. Where no run tells, they are free.
void add_overheads(const ProfiledRuns& runs, plan::ModelProfile& profile);

}  // namespace lockstep::bench
