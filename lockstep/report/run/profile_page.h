#pragma once

#include "lockstep/record/profile/profile.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// Returns the profile of a run as a section: where the time of a step went, on each rank and by
/// layers, and the picture of one step.
page::Section section_of_profile(const RunProfile& profile);

/// Returns the phases of a step as a timeline shows them, in their order.
std::vector<plot::Timeline::Kind> kinds_of_phases();

/// Returns the picture of one step of a rank, in milliseconds; the rank's timeline is not empty.
plot::Timeline timeline_of(const RankProfile& rank);

}  // namespace lockstep::bench
