#pragma once

#include "lockstep/launch/hosts/hosts_options.h"

namespace lockstep::launch {

/// Runs a command on several hosts at once, made within this machine or real ones, waits for all
/// and returns the run's exit code: 0, or that of the host that failed first.
///
/// The first failure ends all; then they are started again, if the options allow it. A signal from
/// outside is passed on. Nothing is left at the end, even when the calling process is killed.
///
/// Call it from the main thread of `lockstep` itself, which is also the first process of each made
/// host. Throws InvalidArgument, and std::system_error for what is wrong before the start.
int run_hosts(const HostsOptions& options);

}  // namespace lockstep::launch
