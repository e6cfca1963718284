#pragma once

#include "bench/study/training_run.h"
#include "lockstep/plan/way.h"

namespace lockstep::bench {

/// Returns the flags with which `lockstep train` trains in this way on one node, with a batch of
/// so many samples on all replicas together. Stages are cut by time.
Words train_flags_of(const plan::Way& way, double batch);

}  // namespace lockstep::bench
