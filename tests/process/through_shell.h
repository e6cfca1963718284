#pragma once

#include <string>

#include "tests/process/command.h"

namespace lockstep::testing {

/// The ways to close standard streams, for run_through_shell().
inline constexpr const char* kClosedStreams[] = {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"};

/// Runs `lockstep ARGUMENTS` in the place of a shell, with these redirections and after these
/// words.
inline Ended run_through_shell(
    const std::string& redirections, const Words& arguments, const std::string& before = "") {
  Words all = {"-c", before + "exec \"$0\" \"$@\" " + redirections, built_lockstep()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(all, {}, "/bin/bash");
}

}  // namespace lockstep::testing
