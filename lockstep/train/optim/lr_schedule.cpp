#include "lockstep/train/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"

namespace lockstep {

bool has_length(LrScheduleKind kind) {
  return kind == LrScheduleKind::kCosine || kind == LrScheduleKind::kPolynomial ||
         kind == LrScheduleKind::kOneCycle;
}

namespace {

// From `start` to `end` on half a cosine as `share` goes from 0 to 1.
double cosine_between(double start, double end, double share) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double decayed(const LrSchedule& schedule, std::int64_t times) {
  return std::max(
      schedule.lr * std::pow(schedule.rate, static_cast<double>(times)), schedule.min_lr);
}

double share_of_length(const LrSchedule& schedule, std::int64_t tick) {
  return std::min(1.0, static_cast<double>(tick) / static_cast<double>(schedule.length));
}

// PyTorch's phases meet at a time that need not be whole, and the first may be empty.
double one_cycle(const LrSchedule& schedule, std::int64_t tick) {
  const auto last = static_cast<double>(schedule.length - 1);
  const double time = std::min(static_cast<double>(tick), last);
  const double top = schedule.pct_start * static_cast<double>(schedule.length) - 1;
  const double first_lr = schedule.lr / schedule.div_factor;
  if (time <= top) return cosine_between(first_lr, schedule.lr, top > 0 ? time / top : 1);
  const double share = (time - top) / (last - top);
  return cosine_between(schedule.lr, first_lr / schedule.final_div_factor, share);
}

double after_warmup(const LrSchedule& schedule, std::int64_t tick) {
  switch (schedule.kind) {
    case LrScheduleKind::kStep:
      return decayed(schedule, tick / schedule.interval);
    case LrScheduleKind::kMultistep:
      return decayed(schedule,
          std::ranges::upper_bound(schedule.milestones, tick) - schedule.milestones.begin());
    case LrScheduleKind::kExponential:
      return decayed(schedule, tick);
    case LrScheduleKind::kCosine:
      return cosine_between(schedule.lr, schedule.min_lr, share_of_length(schedule, tick));
    case LrScheduleKind::kPolynomial:
      return schedule.min_lr + (schedule.lr - schedule.min_lr) *
                                   std::pow(1 - share_of_length(schedule, tick), schedule.power);
    case LrScheduleKind::kOneCycle:
      return one_cycle(schedule, tick);
    case LrScheduleKind::kConstant:
    case LrScheduleKind::kPlateau:
      break;
  }
  return schedule.lr;
}

}  // namespace

double lr_at(const LrSchedule& schedule, std::int64_t step) {
  check(step >= 0, "lr_at: steps are counted from 0, not from ", step);
  const std::int64_t tick = step / schedule.steps_a_tick;
  if (tick >= schedule.warmup) return after_warmup(schedule, tick - schedule.warmup);
  const double share = static_cast<double>(tick) / static_cast<double>(schedule.warmup);
  return schedule.warmup_lr + (schedule.lr - schedule.warmup_lr) * share;
}

namespace {

bool is_better(double value, const std::optional<double>& best, const PlateauRule& rule) {
  if (!best) return std::isfinite(value);
  return rule.larger_is_better ? value > *best * (1 + rule.threshold)
                               : value < *best * (1 - rule.threshold);
}

double fallen(double lr, const PlateauRule& rule) {
  const double lower = std::max(lr * rule.factor, rule.min_lr);
  return lr - lower > rule.smallest_fall ? lower : lr;
}

}  // namespace

PlateauState after_evaluation(PlateauState state, double value, const PlateauRule& rule) {
  if (is_better(value, state.best, rule)) {
    state.best = value;
    state.bad = 0;
  } else {
    ++state.bad;
  }
  if (state.cooldown_left > 0) {
    --state.cooldown_left;
    state.bad = 0;
  }
  if (state.bad > rule.patience) {
    state.lr = fallen(state.lr, rule);
    state.cooldown_left = rule.cooldown;
    state.bad = 0;
  }
  return state;
}

bool LrScheduler::follows_plateau(std::int64_t step) const {
  return schedule_.kind == LrScheduleKind::kPlateau &&
         step / schedule_.steps_a_tick >= schedule_.warmup;
}

double LrScheduler::lr(std::int64_t step, const PlateauState& plateau) const {
  return follows_plateau(step) ? plateau.lr : lr_at(schedule_, step);
}

PlateauState LrScheduler::evaluated(
    const PlateauState& plateau, std::int64_t steps, double value) const {
  return follows_plateau(steps - 1) ? after_evaluation(plateau, value, rule_) : plateau;
}

}  // namespace lockstep
