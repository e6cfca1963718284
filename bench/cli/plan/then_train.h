#pragma once

#include <string>
#include <vector>

#include "bench/cli/plan/plan_flags.h"
#include "lockstep/plan/answer.h"

namespace lockstep::cli {

/// Asks about the training that the flags after -- describe, on this machine: its model, data,
/// precision and batch, which is that of all replicas together, on up to `--places` or
/// `--nproc-per-node` places, or else all cores. What is left of the flags is for measuring. Throws
/// InvalidArgument for flags of `lockstep plan` that ask about something else.
void plan_for_training(PlanCommand& command);

/// Becomes `lockstep train` with the flags of this choice.
[[noreturn]] void become_training(const PlanCommand& command, const plan::Choice& choice);

}  // namespace lockstep::cli
