#pragma once

#include "lockstep/train/strategy/train_plan.h"

namespace lockstep {

/// Finds out what a run would do: reads the data, makes the model, checks the folder and the
/// memory; writes nothing.
///
/// Throws what the run itself would throw; std::system_error when the memory does not suffice.
TrainPlan dry_run(const TrainOptions& options, int world_size, int local_world_size);

}  // namespace lockstep
