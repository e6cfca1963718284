#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/bench/planning/measure_profile.h"
#include "lockstep/plan/answer.h"

namespace lockstep::bench {

/// A choice that was trained for some steps.
struct Confirmed {
  std::size_t choice = 0;   ///< of the answer
  double step_seconds = 0;  ///< measured
};

/// Trains the fastest choices that this machine has the cores for, so many at most, for some steps
/// each, and returns what they took, in the order of the choices.
std::vector<Confirmed> confirm(const plan::Answer& answer, std::size_t most,
    const MeasureRequest& request, const CellPaths& paths,
    const std::function<void(const std::string&)>& say);

/// Returns the confirmed choice with the highest rate, or what the answer picked where nothing was
/// confirmed.
std::optional<std::size_t> pick_of(
    const plan::Answer& answer, const std::vector<Confirmed>& confirmed);

}  // namespace lockstep::bench
