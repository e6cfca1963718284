#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// Finds a program of the system in PATH or where administrators' programs lie; empty if it is not
/// there.
std::string find_tool(const std::string& name);

/// Runs a program of the system, `ip` or `tc`, and waits for its end. Throws std::system_error with
/// the command and its message when it fails or is not there.
void run_tool(const std::vector<std::string>& command);

}  // namespace lockstep::launch
