#pragma once

#include "lockstep/bench/planning/profile_of_runs.h"

namespace lockstep::bench {

/// Returns what ways cost beyond what is predicted of them with the rest of the profile, which has
/// no overheads yet. Where no run tells, they are free.
plan::Overheads overheads_of(const ProfiledRuns& runs, const plan::ModelProfile& profile);

}  // namespace lockstep::bench
