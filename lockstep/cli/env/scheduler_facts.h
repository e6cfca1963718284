#pragma once

#include "lockstep/cli/env/host_facts.h"
#include "lockstep/cluster/surroundings.h"

namespace lockstep::cli {

/// Names the schedulers whose variables a process has, and says what a rank and a launcher that are
/// started in its place understand of them.
Facts scheduler_facts(const cluster::Surroundings& here);

}  // namespace lockstep::cli
