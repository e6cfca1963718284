#pragma once

#include "lockstep/bench/page/page.h"
#include "lockstep/train/profile/profile.h"

namespace lockstep::bench {

/// Returns the profile of a run as a section: where the time of a step went, on each rank and by
/// layers, and the picture of one step.
page::Section section_of_profile(const RunProfile& profile);

}  // namespace lockstep::bench
