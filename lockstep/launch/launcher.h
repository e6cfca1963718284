#pragma once

#include "lockstep/launch/launch_options.h"

namespace lockstep::launch {

/// Runs a program once per rank on this node, waits for all, and returns the run's exit code.
///
/// The first rank that fails decides: the others are ended within a second, and the group is
/// started again where the options allow it and it may help (next_attempt()); otherwise that rank's
/// code is returned (128+n for a signal n). A signal from outside is passed on; ranks that have not
/// ended after the grace period, or at a second signal, are killed. Nothing that they started is
/// left behind.
///
/// Call it from the main thread of a process that has no other children. Throws InvalidArgument and
/// std::system_error for what is wrong before the first rank has started.
int launch(const LaunchOptions& options);

}  // namespace lockstep::launch
