#pragma once

#include <cstddef>

#include "lockstep/plan/collective_time.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::plan {

/// Predict a step of replicas that are not cut, and of stages: the two halves of predict().
Prediction replica_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch);
Prediction stage_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch);

/// Returns the ranks of the replicas: on as few nodes as hold them, with `stages` places each.
Ranks ranks_of(const Way& way, const Machine& machine);

/// Returns the machine as replicas on several nodes use it: bytes between nodes go no faster than a
/// core moves them beside its computing, which they keep it from; and where nodes are made within
/// one machine, ranks that share a core take turns with the bytes within and between nodes, too.
Machine machine_in_use(const Machine& machine, const ModelProfile& profile, const Ranks& ranks);

/// Return the seconds of an all-reduce as the runtime makes it, and the share of them in which a
/// rank cannot compute.
double reduce_seconds(double bytes, const Way& way, const Machine& machine);
double reduce_core_share(double bytes, const Way& way, const Machine& machine);

/// Fills in what the clock knows; `lane` is that of the place to look at.
void take_from(const StepClock& clock, std::size_t lane, Prediction& prediction);

}  // namespace lockstep::plan
