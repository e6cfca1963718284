#pragma once

#include <string>

#include "tests/process/command.h"

namespace lockstep::testing {

/// Returns the arguments by which ranks, two unless said otherwise, run a script.
inline Words shell_ranks(
    const std::string& script, const std::string& flags = "", const std::string& ranks = "2") {
  Words all = words("run --nproc-per-node " + ranks + " " + flags + " --");
  all.insert(all.end(), {"sh", "-c", script});
  return all;
}

}  // namespace lockstep::testing
