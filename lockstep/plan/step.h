#pragma once

// What predict() is made of.

#include <functional>
#include <span>

#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::plan {

/// A discrete-event simulation of one step.
///
/// Lanes, a place or a link each, do their tasks one after the other in the order in which these
/// are added; a task starts as soon as its lane is free and the tasks that it needs are done. A
/// task is added after those that it needs, so that its time is known at once.
class StepClock {
 public:
  using Task = std::size_t;

  std::size_t add_lane(std::string name);

  /// Adds a task and returns it. Throws InvalidArgument for a lane or a need that is not there.
  Task add(std::size_t lane, Use use, std::string name, double seconds,
      std::span<const Task> needs = {});

  double length() const;
  const std::vector<std::string>& lanes() const { return lanes_; }
  const std::vector<TimedTask>& tasks() const { return tasks_; }

  /// Returns the seconds that a lane spends on each use.
  std::array<double, kUses> uses_of(std::size_t lane) const;

 private:
  std::vector<std::string> lanes_;
  std::vector<double> free_at_;  // per lane
  std::vector<TimedTask> tasks_;
};

/// Returns how many times as long an action takes while so many ranks compute, itself included.
using Slowdown = std::function<double(int active)>;

/// Computes when each action of a schedule happens where ranks slow each other down while they
/// compute at the same time: each takes its cost of a rank alone, at a speed that changes whenever
/// another one begins or ends. With a slowdown of 1 the times are those of simulate_stages().
///
/// Transfers take their time whatever the ranks do. Throws InvalidArgument as simulate_stages, and
/// for a schedule that holds transfers of its own.
Timetable shared_timetable(
    const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown);

/// Returns when each of some tasks that begin together ends, in seconds from then; the costs are
/// those of a task alone, in seconds.
std::vector<double> shared_seconds(const std::vector<double>& costs, const Slowdown& slowdown);

/// Predict a step of replicas that are not cut, and of stages: the two halves of predict().
Prediction replica_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch);
Prediction stage_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch);

/// Returns the ranks of the replicas: on as few nodes as hold them, with `stages` places each.
Ranks ranks_of(const Way& way, const Machine& machine);

/// Return the ranks of `fsdp` that share a copy of the model, and those that have the same part of
/// all copies; in both, a node has as many groups as fill it.
Ranks ranks_of_copy(const Way& way, const Machine& machine);
Ranks ranks_of_part(const Way& way, const Machine& machine);

/// Returns how many bytes of gradients are sent: a hook may halve them.
double sent_bytes(double bytes, const Way& way);

/// Layers that `fsdp` gathers at once, by their numbers, and the bytes of their parameters.
struct ShardedUnit {
  std::vector<std::size_t> layers;
  double bytes = 0;
  double gathered = 0;  ///< half in a mixed precision, as if autocast cast all of them
};

std::vector<ShardedUnit> sharded_units(const ModelProfile& profile, const Way& way);

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

}  // namespace lockstep::plan
