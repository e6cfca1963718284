#include "lockstep/train/options/optimizer_settings.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

using Sched = LrScheduleKind;

bool passes_by_steps(const LrSettings& settings, const TrainLimits& limits) {
  return settings.on_updates || settings.warmup_steps || settings.kind == Sched::kOneCycle ||
         (has_length(settings.kind) && !limits.epochs);
}

// A time beyond all counting is never reached.
std::int64_t ticks_of(std::int64_t epochs, std::int64_t ticks_an_epoch) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return epochs > kMost / ticks_an_epoch ? kMost : epochs * ticks_an_epoch;
}

using Kinds = std::initializer_list<Sched>;

void check_belongs(const char* flag, bool is_given, Sched kind, Kinds kinds) {
  if (!is_given || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const Sched each : kinds) names.emplace_back(name_of(each));
  throw InvalidArgument(
      concat("train: ", flag, " is for --sched ", joined(names), "; it is ", name_of(kind)));
}

void check_all_belong(const LrSettings& set) {
  const auto check_flag = [&set](const char* flag, bool is_given, Kinds kinds) {
    check_belongs(flag, is_given, set.kind, kinds);
  };
  check_flag("--decay-epochs", set.decay_epochs.has_value(), {Sched::kStep});
  check_flag("--decay-milestones", !set.decay_milestones.empty(), {Sched::kMultistep});
  check_flag("--decay-rate", set.decay_rate.has_value(),
      {Sched::kStep, Sched::kMultistep, Sched::kExponential, Sched::kPlateau});
  check_flag("--min-lr", set.min_lr.has_value(),
      {Sched::kStep, Sched::kMultistep, Sched::kExponential, Sched::kCosine, Sched::kPolynomial,
          Sched::kPlateau});
  check_flag("--poly-power", set.power.has_value(), {Sched::kPolynomial});
  check_flag("--patience-epochs", set.patience_epochs.has_value(), {Sched::kPlateau});
  check_flag("--cooldown-epochs", set.cooldown_epochs.has_value(), {Sched::kPlateau});
  check_flag("--pct-start", set.pct_start.has_value(), {Sched::kOneCycle});
  check_flag("--div-factor", set.div_factor.has_value(), {Sched::kOneCycle});
  check_flag("--final-div-factor", set.final_div_factor.has_value(), {Sched::kOneCycle});
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

void check_is_adam(const char* flag, bool is_given, OptimizerKind kind) {
  check(!is_given || kind != OptimizerKind::kSgd, "train: ", flag,
      " is for --opt adam and adamw; it is ", name_of(kind));
}

void check_beta(double beta) {
  check(beta >= 0 && beta < 1,
      "train: --opt-betas must be numbers of at least 0 and below 1: ", beta);
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
    check(all > schedule.warmup, "train: the warm-up of the learning rate takes ", schedule.warmup,
        " of ", all, " epochs or steps and leaves none for --sched; shorten it or train longer");
    schedule.length = all - schedule.warmup;
  }
  schedule.interval = ticks_of(settings.decay_epochs.value_or(1), ticks_an_epoch);
  for (const std::int64_t epochs : settings.decay_milestones)
    schedule.milestones.push_back(ticks_of(epochs, ticks_an_epoch));
  schedule.rate = settings.decay_rate.value_or(
      settings.kind == Sched::kExponential ? LrSettings::kExponentialRate : LrSettings::kDecayRate);
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

void check_lr_settings(const LrSettings& settings, double lr, const TrainLimits& limits) {
  check_all_belong(settings);
  check_at_most_lr("--warmup-lr", settings.warmup_lr, lr);
  check_at_most_lr("--min-lr", settings.min_lr, lr);
  check_milestones(settings.decay_milestones);
  check(settings.kind != Sched::kStep || settings.decay_epochs,
      "train: --sched step needs --decay-epochs: how many epochs each rate lasts");
  check(settings.kind != Sched::kMultistep || !settings.decay_milestones.empty(),
      "train: --sched multistep needs --decay-milestones: the epochs after which the rate falls");
  check(!settings.warmup_epochs || !settings.warmup_steps,
      "train: --warmup-epochs and --warmup-steps mean the same; give one of them");
  const bool warms_up = settings.warmup_epochs || settings.warmup_steps;
  const bool is_constant = settings.kind == Sched::kConstant || settings.kind == Sched::kPlateau;
  check(!settings.on_updates || !is_constant || warms_up,
      "train: --sched-on-updates changes the rate at every step, but --sched ",
      name_of(settings.kind), " without a warm-up has one rate");
  check(!settings.warmup_lr || warms_up,
      "train: --warmup-lr needs --warmup-epochs or --warmup-steps");
  check(settings.kind != Sched::kOneCycle || !warms_up,
      "train: --sched onecycle warms up by itself; see --pct-start");
  check(!has_length(settings.kind) || limits.epochs || limits.steps, "train: --sched ",
      name_of(settings.kind), " must know when it ends; give --epochs or --max-steps");
}

OptimizerSettings default_settings(OptimizerKind kind) {
  OptimizerSettings settings;
  settings.kind = kind;
  if (kind == OptimizerKind::kSgd) {
    settings.lr = 0.01;
    settings.momentum = 0.9;
  }
  if (kind == OptimizerKind::kAdamW) settings.weight_decay = 0.01;
  return settings;
}

double usual_eps(OptimizerKind kind) { return kind == OptimizerKind::kAdam ? 1e-7 : 1e-8; }

int state_copies(const OptimizerSettings& settings) {
  if (settings.kind != OptimizerKind::kSgd) return 2;
  return settings.momentum > 0 ? 1 : 0;
}

double scaled_lr(const OptimizerSettings& settings, std::int64_t batches_a_step) {
  const auto batches = static_cast<double>(batches_a_step);
  if (settings.lr_scale == LrScale::kLinear) return settings.lr * batches;
  if (settings.lr_scale == LrScale::kSqrt) return settings.lr * std::sqrt(batches);
  return settings.lr;
}

void check_optimizer(const OptimizerSettings& settings, const TrainLimits& limits) {
  check(settings.momentum == 0 || settings.kind == OptimizerKind::kSgd,
      "train: --momentum is for --opt sgd; ", name_of(settings.kind), " has its own");
  check(settings.weight_decay_on == DecayOn::kAll || settings.weight_decay > 0,
      "train: --weight-decay-on says which parameters decay, and none does: give --weight-decay");
  check_is_adam("--opt-eps", settings.eps.has_value(), settings.kind);
  check_is_adam("--opt-betas", settings.betas.has_value(), settings.kind);
  if (settings.betas) check_beta(settings.betas->first);
  if (settings.betas) check_beta(settings.betas->second);
  check_lr_settings(settings.schedule, settings.lr, limits);
}

}  // namespace lockstep
