#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {

/// Ends training in time, on all ranks after the same step.
///
/// The ranks compare their clocks only about four times a second, at steps that all of them know
/// beforehand.
class TimeBudget {
 public:
  /// Starts the clock; without a limit nothing is ever spent and nothing is sent.
  TimeBudget(std::optional<double> seconds, ProcessGroup world);

  /// Says whether the time is spent. A collective: call it after every step on every rank.
  bool spent() { return limit_ && --steps_until_check_ <= 0 && agree(); }

 private:
  bool agree();

  std::optional<double> limit_;
  ProcessGroup world_;
  Stopwatch watch_;
  std::int64_t steps_until_check_ = 1;
  std::int64_t steps_planned_ = 1;
  std::int64_t steps_checked_ = 0;
};

/// Gives the number of steps to make before the clocks are compared again.
std::int64_t steps_to_next_check(double step_seconds, double seconds_left);

}  // namespace lockstep
