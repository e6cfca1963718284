#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Lets all ranks act alike after the same step: on the time, on signals, on what disks do.
///
/// The ranks tell each other only about four times a second, at steps that all of them know
/// beforehand; one that is alone need not tell anybody and looks at every step.
///
///     if (agreement.is_due())
///       numbers = agreement.maximum({seconds, signal, ...}, seconds_left);
class Agreement {
 public:
  static constexpr std::size_t kNumbers = 6;
  using Numbers = std::array<double, kNumbers>;

  explicit Agreement(ProcessGroup world) : world_(std::move(world)) {}

  /// Counts a step and says whether the ranks now agree: the same on all of them. Call it after
  /// every step.
  bool is_due() { return --steps_until_check_ <= 0; }

  /// Gives each number's maximum over all ranks. The first one must be the seconds of training;
  /// `limit` is when they end, so that it is not missed by far. A collective.
  Numbers maximum(const Numbers& own, const std::optional<double>& limit);

 private:
  void plan(double seconds, const std::optional<double>& limit);

  ProcessGroup world_;
  double seconds_ = 0;  // at the last check
  std::int64_t steps_planned_ = 1;
  std::int64_t steps_until_check_ = 1;
};

/// Gives the number of steps to make before the ranks agree again.
std::int64_t steps_to_next_check(double step_seconds, double seconds_left);

}  // namespace lockstep
