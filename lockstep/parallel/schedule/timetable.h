#pragma once

#include <string>
#include <vector>

#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// The durations of a stage's actions, in any unit of time.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  /// The cost of kBackward: input and weight together.
  double backward = 2;
  /// The time from sending to having received, between this stage and the one after it. Without
  /// transfers in the schedule it passes while the ranks compute; a send or receive in the schedule
  /// keeps its rank busy.
  double transfer = 0;

  /// Returns the cost of what a rank computes; 0 of a transfer.
  double of(ActionKind kind) const;
};

struct TimedAction {
  Action action = {};
  double start = 0;
  double end = 0;

  friend bool operator==(const TimedAction&, const TimedAction&) = default;
};

/// A schedule with its times: every action starts as soon as its rank and its input are ready.
struct Timetable {
  int stages = 0;
  std::vector<std::vector<TimedAction>> ranks;
  double length = 0;
  /// Per rank, the largest number of forwards whose backward is not over, which is how many
  /// activations of a stage are kept. A split backward is over when the weights have their
  /// gradient.
  std::vector<int> most_live_activations;

  /// Returns the share of all ranks' time in which they do not compute.
  double idle_share() const;
};

/// Computes when each action happens, with the costs of each stage. Throws InvalidArgument if a
/// cost is negative, the schedule is not valid, or its stages are of another number.
Timetable simulate_stages(const Schedule& schedule, const std::vector<ActionCosts>& stages);

/// Computes it with equal costs for all stages.
Timetable simulate(const Schedule& schedule, const ActionCosts& costs);

/// Returns for each rank of how many micro-batches the activations of a stage are kept at once,
/// where those that are computed again are there from their backward on: in a split backward until
/// the weights have their gradient too.
std::vector<int> most_live_activations(const Schedule& schedule, Checkpoint checkpoint);

/// Draws a row per stage and a column per unit of time: `stage 0  F0 F1  . B0`. An action longer
/// than a unit continues as `=`; transfers are not drawn. Throws InvalidArgument unless all starts
/// and ends are whole numbers.
std::string to_table(const Timetable& timetable);

/// Returns the idle share of a schedule whose forwards take as long as each half of a backward,
/// free transfers, by its closed form: sequential 1 - 1/p, GPipe and 1F1B (p-1)/(m+p-1),
/// interleaved (p-1)/(vm+p-1), zero-bubble (p-1)/(3vm+p-1), with p ranks, v stages each, m
/// micro-batches.
///
/// Interleaved and zero-bubble reach it if m is a multiple of p, and idle longer otherwise,
/// as simulate() shows. Throws as make_schedule.
double bubble_share(ScheduleKind kind, int ranks, int stages, int micro_batches);

}  // namespace lockstep
