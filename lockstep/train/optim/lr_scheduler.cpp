#include "lockstep/train/optim/lr_scheduler.h"

#include <utility>

namespace lockstep {

LrScheduler::LrScheduler(LrSchedule schedule, const PlateauRule& rule)
    : schedule_(std::move(schedule)), rule_(rule), plateau_{.lr = schedule_.lr} {}

bool LrScheduler::follows_plateau(std::int64_t step) const {
  return schedule_.kind == LrScheduleKind::kPlateau &&
         step / schedule_.steps_a_tick >= schedule_.warmup;
}

double LrScheduler::lr(std::int64_t step) const {
  return follows_plateau(step) ? plateau_.lr : lr_at(schedule_, step);
}

void LrScheduler::evaluated(std::int64_t steps, double value) {
  if (follows_plateau(steps - 1)) plateau_ = after_evaluation(plateau_, value, rule_);
}

}  // namespace lockstep
