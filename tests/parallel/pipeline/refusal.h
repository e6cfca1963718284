#pragma once

#include <string>

#include "lockstep/core/error.h"

namespace lockstep::testing {

/// Gives the message with which the call is refused.
std::string refusal(const auto& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace lockstep::testing
