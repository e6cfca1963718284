#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/schedule/action.h"

namespace lockstep {

/// Writes actions as the conformance cases do: `0F0 0SEND_F0 0F1`.
inline std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ' ';
    text += to_string(action);
  }
  return text;
}

}  // namespace lockstep
