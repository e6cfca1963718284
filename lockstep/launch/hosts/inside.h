#pragma once

#include <signal.h>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Gives what this process starts next its own processes, mounts and host name. Throws
/// std::system_error.
void keep_apart();

/// The signal by which a host dies, with all of its processes at once.
inline constexpr int kPowerFailure = SIGPWR;

/// Runs a command as what a host of that name does: process 1 of its own processes, with its own
/// /proc, and returns its exit code (128+n for a signal n).
///
/// All that the command started has ended then. Its processes also end when the calling process
/// does, however that happens. Signals to the caller's process group are passed on. Call it in a
/// process that has nothing else to do. Throws std::system_error, and InvalidArgument for a program
/// that is not there.
int run_as_host(const std::string& name, const std::vector<std::string>& command);

/// Returns a line that says why several hosts cannot be made within this machine, and what to do;
/// empty when they can. It tries once, in a separate process.
const std::string& hosts_missing();

}  // namespace lockstep::launch
