#include "lockstep/launch/ranks/rescue_wait.h"

#include <algorithm>

#include "lockstep/launch/patience.h"

namespace lockstep::launch {
bool waits_for_rescue(
    const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure) {
  const auto has = [&](RescueState state) { return std::ranges::find(left, state) != left.end(); };
  if (has(RescueState::kDone)) return false;
  return (has(RescueState::kUnderWay) && since_failure < patience::kToSave) ||
         (has(RescueState::kPossible) && since_failure < patience::kToNotice);
}

}  // namespace lockstep::launch
