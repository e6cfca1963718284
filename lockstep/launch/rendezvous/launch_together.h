#pragma once

#include "lockstep/launch/launch_options.h"

namespace lockstep::launch {

/// Does what launch() does, for a node of a world that meets by LaunchOptions::rendezvous: all
/// nodes start their ranks together, again after a failure anywhere, and with other nodes when some
/// have gone or come.
///
/// Returns the run's exit code, the same on all nodes; kPeersLost where the node that serves is
/// lost or too few come; of a node that was asked to stop what its ranks say. Throws
/// InvalidArgument for a node that is refused, with what differs.
int launch_together(const LaunchOptions& options);

/// Throws InvalidArgument that names the flag for options of the rendezvous that cannot work, such
/// as no secret on a network.
void check_rendezvous(const RendezvousOptions& options);

}  // namespace lockstep::launch
