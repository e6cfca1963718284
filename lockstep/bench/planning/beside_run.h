#pragma once

#include <vector>

#include "lockstep/bench/page/table.h"
#include "lockstep/bench/plot/timeline.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/train/profile/profile.h"

namespace lockstep::bench {

/// Sets a predicted step beside the step of a run's profile, use by use: of the busiest place, and
/// of the busiest thread of rank 0, both in milliseconds.
page::Table beside_table(const plan::Prediction& prediction, const RunProfile& profile);

/// Returns the pictures of both, the prediction's first, in the same scale. A profile without a
/// picture of its step leaves the prediction's alone.
std::vector<plot::Timeline> beside_timelines(
    const plan::Prediction& prediction, const RunProfile& profile);

}  // namespace lockstep::bench
