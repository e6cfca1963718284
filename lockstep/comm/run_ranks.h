#pragma once

#include <functional>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Runs the body once per rank, each rank a thread of this process with its place in a common
/// group.
///
/// When one throws, the collectives of the others fail, and the first exception is thrown here once
/// all have ended.
///
///     lockstep::run_ranks(2, [](lockstep::ProcessGroup world) { ... });
void run_ranks(int size, const std::function<void(ProcessGroup)>& body);

}  // namespace lockstep
