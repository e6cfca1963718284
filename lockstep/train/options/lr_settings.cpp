#include "lockstep/train/options/lr_settings.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

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
  check(all > warmup, "train: the warm-up of the learning rate takes ", warmup, " of ", all,
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
  schedule.warmup_lr = settings.warmup_lr.value_or(std::min(LrSettings::kWarmupLr, lr));
  if (has_length(settings.kind)) {
    const std::int64_t all =
        limits.epochs ? ticks_of(*limits.epochs, ticks_an_epoch) : limits.steps.value();
    schedule.length = length_after(schedule.warmup, all);
  }
  schedule.interval = ticks_of(settings.decay_epochs.value_or(1), ticks_an_epoch);
  for (const std::int64_t epochs : settings.decay_milestones)
    schedule.milestones.push_back(ticks_of(epochs, ticks_an_epoch));
  schedule.rate = settings.decay_rate.value_or(
      settings.kind == Kind::kExponential ? LrSettings::kExponentialRate : LrSettings::kDecayRate);
  schedule.power = settings.power.value_or(schedule.power);
  schedule.pct_start = settings.pct_start.value_or(schedule.pct_start);
  schedule.div_factor = settings.div_factor.value_or(schedule.div_factor);
  schedule.final_div_factor = settings.final_div_factor.value_or(schedule.final_div_factor);
  return schedule;
}

PlateauRule plateau_rule(const LrSettings& settings, bool larger_is_better) {
  PlateauRule rule;
  rule.factor = settings.decay_rate.value_or(LrSettings::kDecayRate);
  rule.patience = settings.patience_epochs.value_or(rule.patience);
  rule.cooldown = settings.cooldown_epochs.value_or(rule.cooldown);
  rule.min_lr = settings.min_lr.value_or(0);
  rule.larger_is_better = larger_is_better;
  return rule;
}

namespace {

using Kinds = std::initializer_list<Kind>;

void check_belongs(const char* flag, bool is_given, Kind kind, Kinds kinds) {
  if (!is_given || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const Kind each : kinds) names.emplace_back(name_of(each));
  throw InvalidArgument(
      concat("train: ", flag, " is for --sched ", joined(names), "; it is ", name_of(kind)));
}

void check_all_belong(const LrSettings& set) {
  const auto check_flag = [&set](const char* flag, bool is_given, Kinds kinds) {
    check_belongs(flag, is_given, set.kind, kinds);
  };
  check_flag("--decay-epochs", set.decay_epochs.has_value(), {Kind::kStep});
  check_flag("--decay-milestones", !set.decay_milestones.empty(), {Kind::kMultistep});
  check_flag("--decay-rate", set.decay_rate.has_value(),
      {Kind::kStep, Kind::kMultistep, Kind::kExponential, Kind::kPlateau});
  check_flag("--min-lr", set.min_lr.has_value(),
      {Kind::kStep, Kind::kMultistep, Kind::kExponential, Kind::kCosine, Kind::kPolynomial,
          Kind::kPlateau});
  check_flag("--poly-power", set.power.has_value(), {Kind::kPolynomial});
  check_flag("--patience-epochs", set.patience_epochs.has_value(), {Kind::kPlateau});
  check_flag("--cooldown-epochs", set.cooldown_epochs.has_value(), {Kind::kPlateau});
  check_flag("--pct-start", set.pct_start.has_value(), {Kind::kOneCycle});
  check_flag("--div-factor", set.div_factor.has_value(), {Kind::kOneCycle});
  check_flag("--final-div-factor", set.final_div_factor.has_value(), {Kind::kOneCycle});
}

void check_at_most_lr(const char* flag, const std::optional<double>& value, double lr) {
  check(value.value_or(0) <= lr, "train: ", flag, " must be at most --lr, ", lr, ": ",
      value.value_or(0));
}

void check_milestones(const std::vector<std::int64_t>& milestones) {
  std::int64_t before = 0;
  for (const std::int64_t milestone : milestones) {
    check(milestone > before, "train: --decay-milestones must be above 0 and ascend: ", milestone,
        " comes after ", before);
    before = milestone;
  }
}

void check_needs(const LrSettings& set) {
  check(set.kind != Kind::kStep || set.decay_epochs,
      "train: --sched step needs --decay-epochs: how many epochs each rate lasts");
  check(set.kind != Kind::kMultistep || !set.decay_milestones.empty(),
      "train: --sched multistep needs --decay-milestones: the epochs after which the rate falls");
}

}  // namespace

void check_lr_settings(const LrSettings& settings, double lr, const TrainLimits& limits) {
  check_all_belong(settings);
  check_at_most_lr("--warmup-lr", settings.warmup_lr, lr);
  check_at_most_lr("--min-lr", settings.min_lr, lr);
  check_milestones(settings.decay_milestones);
  check_needs(settings);
  check(!settings.warmup_epochs || !settings.warmup_steps,
      "train: --warmup-epochs and --warmup-steps mean the same; give one of them");
  const bool warms_up = settings.warmup_epochs || settings.warmup_steps;
  const bool is_constant = settings.kind == Kind::kConstant || settings.kind == Kind::kPlateau;
  check(!settings.on_updates || !is_constant || warms_up,
      "train: --sched-on-updates changes the rate at every step, but --sched ",
      name_of(settings.kind), " without a warm-up has one rate");
  check(!settings.warmup_lr || warms_up,
      "train: --warmup-lr needs --warmup-epochs or --warmup-steps");
  check(settings.kind != Kind::kOneCycle || !warms_up,
      "train: --sched onecycle warms up by itself; see --pct-start");
  check(!has_length(settings.kind) || limits.epochs || limits.steps, "train: --sched ",
      name_of(settings.kind), " must know when it ends; give --epochs or --max-steps");
}

}  // namespace lockstep
