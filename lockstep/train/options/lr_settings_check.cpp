// The half of lr_settings.h that refuses what does not fit.

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "lockstep/core/error.h"
#include "lockstep/train/options/lr_settings.h"

namespace lockstep {
namespace {

using Kind = LrScheduleKind;
using Kinds = std::initializer_list<Kind>;

void check_belongs(const char* flag, bool is_given, Kind kind, Kinds kinds) {
  if (!is_given || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  std::string names;
  for (const Kind each : kinds) names += concat(names.empty() ? "" : ", ", name_of(each));
  throw InvalidArgument(
      concat("train: ", flag, " is for --sched ", names, "; it is ", name_of(kind)));
}

void check_all_belong(const LrSettings& set) {
  const auto check_flag = [&set](const char* flag, bool is_given, Kinds kinds) {
    check_belongs(flag, is_given, set.kind, kinds);
  };
  check_flag("--decay-epochs", set.decay_epochs.has_value(), {Kind::kStep});
  check_flag("--decay-milestones", !set.decay_milestones.empty(), {Kind::kMultistep});
  check_flag(
      "--decay-rate", set.decay_rate.has_value(),
      {Kind::kStep, Kind::kMultistep, Kind::kExponential, Kind::kPlateau});
  check_flag(
      "--min-lr", set.min_lr.has_value(),
      {Kind::kStep, Kind::kMultistep, Kind::kExponential, Kind::kCosine, Kind::kPolynomial,
       Kind::kPlateau});
  check_flag("--poly-power", set.power.has_value(), {Kind::kPolynomial});
  check_flag("--patience-epochs", set.patience_epochs.has_value(), {Kind::kPlateau});
  check_flag("--cooldown-epochs", set.cooldown_epochs.has_value(), {Kind::kPlateau});
  check_flag("--pct-start", set.pct_start.has_value(), {Kind::kOneCycle});
  check_flag("--div-factor", set.div_factor.has_value(), {Kind::kOneCycle});
  check_flag("--final-div-factor", set.final_div_factor.has_value(), {Kind::kOneCycle});
}

void check_least(const char* flag, const std::optional<std::int64_t>& value, std::int64_t least) {
  check(
      value.value_or(least) >= least, "train: ", flag, " must be at least ", least, ": ",
      value.value_or(least));
}

void check_between(
    const char* flag, const std::optional<double>& value, double least, double most) {
  if (!value) return;
  check(
      *value >= least && *value <= most, "train: ", flag, " must be from ", least, " to ", most,
      ": ", *value);
}

void check_above_zero(const char* flag, const std::optional<double>& value) {
  check(
      std::isfinite(value.value_or(1)) && value.value_or(1) > 0, "train: ", flag,
      " must be a number above 0: ", value.value_or(1));
}

void check_numbers(const LrSettings& set, double lr) {
  check_least("--warmup-epochs", set.warmup_epochs, 0);
  check_least("--warmup-steps", set.warmup_steps, 0);
  check_between("--warmup-lr", set.warmup_lr, 0, lr);
  check_between("--min-lr", set.min_lr, 0, lr);
  check_least("--decay-epochs", set.decay_epochs, 1);
  check_least("--patience-epochs", set.patience_epochs, 0);
  check_least("--cooldown-epochs", set.cooldown_epochs, 0);
  check_above_zero("--decay-rate", set.decay_rate);
  check_between("--decay-rate", set.decay_rate, 0, 1);
  check_above_zero("--poly-power", set.power);
  check_between("--pct-start", set.pct_start, 0, 1);
  check_above_zero("--div-factor", set.div_factor);
  check_above_zero("--final-div-factor", set.final_div_factor);
}

void check_milestones(const std::vector<std::int64_t>& milestones) {
  std::int64_t before = 0;
  for (const std::int64_t milestone : milestones) {
    check(
        milestone > before, "train: --decay-milestones must be above 0 and ascend: ", milestone,
        " comes after ", before);
    before = milestone;
  }
}

void check_needs(const LrSettings& set) {
  check(
      set.kind != Kind::kStep || set.decay_epochs,
      "train: --sched step needs --decay-epochs: how many epochs each rate lasts");
  check(
      set.kind != Kind::kMultistep || !set.decay_milestones.empty(),
      "train: --sched multistep needs --decay-milestones: the epochs after which the rate falls");
}

}  // namespace

void check_lr_settings(const LrSettings& settings, double lr, const TrainLimits& limits) {
  check_all_belong(settings);
  check_numbers(settings, lr);
  check_milestones(settings.decay_milestones);
  check_needs(settings);
  check(
      !settings.warmup_epochs || !settings.warmup_steps,
      "train: --warmup-epochs and --warmup-steps say the same; give one of them");
  const bool warms_up = settings.warmup_epochs || settings.warmup_steps;
  check(
      !settings.warmup_lr || warms_up,
      "train: --warmup-lr needs --warmup-epochs or --warmup-steps");
  check(
      settings.kind != Kind::kOneCycle || !warms_up,
      "train: --sched onecycle warms up by itself; see --pct-start");
  check(
      !has_length(settings.kind) || limits.epochs || limits.steps, "train: --sched ",
      name_of(settings.kind), " must know when it ends; give --epochs or --max-steps");
}

}  // namespace lockstep
