#pragma once

#include <chrono>
#include <vector>

#include "lockstep/liveness/slot.h"

namespace lockstep::launch {

/// Returns whether the ranks that are left after a failure may go on for now: one of them saves
/// what all have trained, or may be about to notice that it has lost its peers. One that has saved
/// is enough.
bool waits_for_rescue(const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure);

}  // namespace lockstep::launch
