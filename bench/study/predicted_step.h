#pragma once

#include "lockstep/plan/model_profile.h"
#include "lockstep/plan/way.h"

namespace lockstep::bench {

/// Predicts, as `lockstep plan` does, the seconds of a step of `batch` samples from those of a
/// whole step on one place: computing is shared evenly, and gradients are sent while backward goes
/// on. `machine` has as many places as the way needs.
double predicted_step(
    const plan::WholeStep& alone, const plan::Machine& machine, const plan::Way& way, double batch);

/// Predicts a step of ddp on nodes of one place each, whose links have this rate.
double predicted_on_nodes(
    const plan::WholeStep& alone, int nodes, double batch, double bits_per_second);

}  // namespace lockstep::bench
