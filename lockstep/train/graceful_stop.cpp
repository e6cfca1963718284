#include "lockstep/train/graceful_stop.h"

#include <algorithm>
#include <limits>

#include "lockstep/snapshot/group_values.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep {

namespace {

constexpr double kSecondsBetweenChecks = 0.25;
constexpr double kMostSteps = 1000;

}  // namespace

StepReport Agreement::maximum(StepReport report, const std::optional<double>& limit) {
  if (world_.size() == 1) return report;
  SnapshotReport& snapshot = report.snapshot;
  maximize({&report.seconds, &report.signal, &snapshot.busy, &snapshot.failed,
               &snapshot.stall_seconds, &snapshot.background_seconds},
      world_);
  plan(report.seconds, limit);
  return report;
}

// Every rank computes with the same numbers, so all come to the same step.
void Agreement::plan(double seconds, const std::optional<double>& limit) {
  const auto made = static_cast<double>(std::max<std::int64_t>(steps_made_, 1));
  const double step_seconds = (seconds - seconds_) / made;
  const double left = limit.value_or(std::numeric_limits<double>::infinity()) - seconds;
  seconds_ = seconds;
  steps_planned_ = steps_to_next_check(step_seconds, left);
  steps_made_ = 0;
}

std::int64_t steps_to_next_check(double step_seconds, double seconds_left) {
  const double wait = std::min(kSecondsBetweenChecks, seconds_left);
  return static_cast<std::int64_t>(
      std::clamp(wait / std::max(step_seconds, 1e-9), 1.0, kMostSteps));
}

GracefulStop::GracefulStop(ProcessGroup world) : agreement_(std::move(world)) {
  let_stops_be_saved();
  handle_stop_signals();
}

bool GracefulStop::requested() {
  if (is_requested_ || !agreement_.is_due()) return is_requested_;
  const StepReport own{.seconds = watch_.seconds(), .signal = static_cast<double>(stop_signal())};
  is_requested_ = agreement_.maximum(own, {}).signal != 0;
  return is_requested_;
}

}  // namespace lockstep
