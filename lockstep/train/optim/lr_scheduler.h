#pragma once

#include <cstdint>

#include "lockstep/train/optim/lr_plateau.h"
#include "lockstep/train/optim/lr_schedule.h"

namespace lockstep {

/// Gives every step its learning rate: by the schedule alone, but for a plateau's also by the
/// evaluations so far, whose state is all that must be saved to go on.
///
///     LrScheduler scheduler(schedule, rule);
///     double lr = scheduler.lr(step);                   // counted from 0
///     scheduler.evaluated(steps_made, loss);            // after each evaluation
class LrScheduler {
 public:
  LrScheduler(LrSchedule schedule, const PlateauRule& rule);

  double lr(std::int64_t step) const;

  /// Takes in an evaluation that came after so many steps; those of the warm-up do not count.
  void evaluated(std::int64_t steps, double value);

  const PlateauState& plateau() const { return plateau_; }
  /// Goes on from what plateau() gave.
  void restore(const PlateauState& state) { plateau_ = state; }

 private:
  bool follows_plateau(std::int64_t step) const;

  LrSchedule schedule_;
  PlateauRule rule_;
  PlateauState plateau_;
};

}  // namespace lockstep
