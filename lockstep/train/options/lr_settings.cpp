#include "lockstep/train/options/lr_settings.h"

#include <algorithm>
#include <limits>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr double kWarmupLr = 1e-5;  // timm's
constexpr double kDecayRate = 0.1, kExponentialRate = 0.9;

using Kind = LrScheduleKind;

bool passes_by_steps(const LrSettings& settings, const TrainLimits& limits) {
  return settings.on_updates || settings.warmup_steps || settings.kind == Kind::kOneCycle ||
         (has_length(settings.kind) && !limits.epochs);
}

// A time beyond all counting is never reached.
std::int64_t ticks_of(std::int64_t epochs, std::int64_t ticks_an_epoch) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return epochs > kMost / ticks_an_epoch ? kMost : epochs * ticks_an_epoch;
}

std::int64_t length_after(std::int64_t warmup, std::int64_t all) {
  check(
      all > warmup, "train: the warm-up of the learning rate takes ", warmup, " of ", all,
      " epochs or steps and leaves none for --sched; shorten it or train longer");
  return all - warmup;
}

}  // namespace

LrSchedule make_lr_schedule(
    const LrSettings& settings, double lr, const TrainLimits& limits, std::int64_t steps_an_epoch) {
  const bool by_steps = passes_by_steps(settings, limits);
  const std::int64_t ticks_an_epoch = by_steps ? steps_an_epoch : 1;
  LrSchedule schedule{.kind = settings.kind, .lr = lr};
  schedule.min_lr = settings.min_lr.value_or(0);
  schedule.steps_a_tick = by_steps ? 1 : steps_an_epoch;
  schedule.warmup =
      settings.warmup_steps.value_or(ticks_of(settings.warmup_epochs.value_or(0), ticks_an_epoch));
  schedule.warmup_lr = settings.warmup_lr.value_or(std::min(kWarmupLr, lr));
  if (has_length(settings.kind)) {
    const std::int64_t all =
        limits.epochs ? ticks_of(*limits.epochs, ticks_an_epoch) : limits.steps.value();
    schedule.length = length_after(schedule.warmup, all);
  }
  schedule.interval = ticks_of(settings.decay_epochs.value_or(1), ticks_an_epoch);
  for (const std::int64_t epochs : settings.decay_milestones)
    schedule.milestones.push_back(ticks_of(epochs, ticks_an_epoch));
  schedule.rate = settings.decay_rate.value_or(
      settings.kind == Kind::kExponential ? kExponentialRate : kDecayRate);
  schedule.power = settings.power.value_or(schedule.power);
  schedule.pct_start = settings.pct_start.value_or(schedule.pct_start);
  schedule.div_factor = settings.div_factor.value_or(schedule.div_factor);
  schedule.final_div_factor = settings.final_div_factor.value_or(schedule.final_div_factor);
  return schedule;
}

PlateauRule plateau_rule(const LrSettings& settings, bool larger_is_better) {
  PlateauRule rule;
  rule.factor = settings.decay_rate.value_or(kDecayRate);
  rule.patience = settings.patience_epochs.value_or(rule.patience);
  rule.cooldown = settings.cooldown_epochs.value_or(rule.cooldown);
  rule.min_lr = settings.min_lr.value_or(0);
  rule.larger_is_better = larger_is_better;
  return rule;
}

}  // namespace lockstep
