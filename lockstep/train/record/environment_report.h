#pragma once

#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Describes what a run computed with, as one line of JSON: versions, processor, ranks, threads.
std::string environment_report(const ProcessGroup& world);

}  // namespace lockstep
