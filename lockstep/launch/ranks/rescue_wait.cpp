#include "lockstep/launch/ranks/rescue_wait.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

// Ranks that wait for a process that has ended see it within milliseconds, on this host and by a
// connection; one that they do not hear of, as behind a cut cable, must not delay the restart.
constexpr std::chrono::milliseconds kToNotice{500};
constexpr std::chrono::seconds kToSave{60};

}  // namespace

bool waits_for_rescue(
    const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure) {
  const auto has = [&](RescueState state) { return std::ranges::find(left, state) != left.end(); };
  if (has(RescueState::kDone)) return false;
  return (has(RescueState::kUnderWay) && since_failure < kToSave) ||
         (has(RescueState::kPossible) && since_failure < kToNotice);
}

}  // namespace lockstep::launch
