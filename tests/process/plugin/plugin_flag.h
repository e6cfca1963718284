#pragma once

#include <string>

#include "lockstep/core/error.h"

namespace lockstep::testing {

/// Returns the flag that loads one of the plugins that are built beside the tests.
inline std::string plugin_flag(const std::string& name) {
  return concat("--plugin ", LOCKSTEP_PLUGINS, "/", name, ".so ");
}

}  // namespace lockstep::testing
