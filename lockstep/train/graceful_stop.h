#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep {

/// A rank's report after a step. Ranks agree on the maximum of each number.
struct StepReport {
  double seconds = 0;  ///< of training
  double signal = 0;   ///< that asks it to stop; 0: none
  SnapshotReport snapshot = {};

  friend bool operator==(const StepReport&, const StepReport&) = default;
};

/// The agreement of all ranks, after the same step, on time, signals and disks.
///
/// Ranks meet only about four times a second, after steps, or parts of steps, that all of them know
/// beforehand; a rank that is alone looks after every one.
///
///     if (agreement.is_due()) agreed = agreement.maximum(own_report, limit_in_seconds);
class Agreement {
 public:
  explicit Agreement(ProcessGroup world) : world_(std::move(world)) {}

  /// Counts a step and returns whether the ranks now agree: the same on all of them. Call it after
  /// every step.
  bool is_due() { return ++steps_made_ >= steps_planned_; }

  /// Returns the maximum of each number over all ranks. `limit` is the second in which training
  /// ends, so that it is not missed by far. A collective.
  StepReport maximum(StepReport report, const std::optional<double>& limit);

 private:
  void plan(double seconds, const std::optional<double>& limit);

  ProcessGroup world_;
  double seconds_ = 0;  // at the last check
  std::int64_t steps_planned_ = 1;
  std::int64_t steps_made_ = 0;  // since then
};

/// Returns the number of steps to make before the ranks agree again.
std::int64_t steps_to_next_check(double step_seconds, double seconds_left);

/// The stop of a training loop after the same step on all ranks, because a signal asked for it:
/// SIGTERM, as schedulers and `lockstep run` send it, SIGINT or SIGUSR1. Exit code 75,
/// ExitCode::kStopped, then tells whoever started the program to start it again.
///
///     lockstep::GracefulStop stop(world);
///     for (...) {
///       ...
///       if (stop.requested()) {
///         snapshot.save(*net, optimizer, {.epoch = epoch, .step = step, .samples = samples});
///         snapshot.wait();
///         return static_cast<int>(lockstep::ExitCode::kStopped);
///       }
///     }
///
/// From the first one on a signal only asks: make it where the loop begins. A second signal, a
/// second or more after the first, ends the process at once.
class GracefulStop {
 public:
  explicit GracefulStop(ProcessGroup world);

  /// Returns whether the ranks stop here. Call it after every step, on all ranks: they meet in a
  /// collective about four times a second, and one rank that got a signal stops all.
  bool requested();

 private:
  Stopwatch watch_;
  Agreement agreement_;
  bool is_requested_ = false;
};

}  // namespace lockstep
