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

/// Groups of equal ranks that exchange at the same time, as those of each stage of a replica do.
struct Groups {
  int count = 1;
  /// How many times this group's bytes all groups' bytes are that pass a node's link meanwhile.
  double on_the_link = 1;
};

/// Returns the machine as the replicas of one group use it. Between nodes all groups share the
/// link, and bytes go no faster than a core moves them beside its computing, which they keep it
/// from. Ranks that share a core take turns with the bytes that it moves: within one machine that
/// plays several nodes, and within a node where there are several groups.
Machine machine_in_use(const Machine& machine, const ModelProfile& profile, const Ranks& ranks,
    const Groups& groups = {});

/// Return the seconds of an all-reduce as the runtime makes it, and the share of them in which a
/// rank cannot compute.
double reduce_seconds(double bytes, const Way& way, const Machine& machine);
double reduce_core_share(double bytes, const Way& way, const Machine& machine);

/// Fills in what the clock knows; `lane` is that of the place to look at.
void take_from(const StepClock& clock, std::size_t lane, Prediction& prediction);

}  // namespace lockstep::plan
