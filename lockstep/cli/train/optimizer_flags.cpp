#include "lockstep/cli/train/optimizer_flags.h"

#include <charconv>
#include <system_error>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/choose.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

void add_step_rule_flags(CLI::App& app, OptimizerTexts& texts) {
  const char* group = "Optimizer";
  app.add_option("--opt", texts.opt)
      ->type_name("NAME")
      ->description("adam, sgd, adamw [adam]")
      ->group(group);
  app.add_option("--momentum", texts.momentum)
      ->type_name("X")
      ->description("of sgd [0.9]")
      ->group(group);
  app.add_option("--weight-decay", texts.weight_decay)
      ->type_name("X")
      ->description("[adam, sgd 0; adamw 0.01]")
      ->group(group);
  app.add_option("--weight-decay-on", texts.weight_decay_on)
      ->type_name("WHAT")
      ->description("all, or weights: not biases and norm layers [all]")
      ->group(group);
  app.add_option("--clip-grad", texts.clip_grad)
      ->type_name("X")
      ->description("largest norm of all gradients together [no limit]")
      ->group(group);
  app.add_flag(
         "--shard-optimizer", texts.shard_optimizer,
         "divide the optimizer's state and work among the replicas (ZeRO stage 1)")
      ->group(group);
}

constexpr const char* kRateGroup = "Learning rate";

void add_rate_flags(CLI::App& app, OptimizerTexts& texts) {
  app.add_option("--lr", texts.lr)
      ->type_name("X")
      ->description("[adam, adamw 0.001; sgd 0.01]")
      ->group(kRateGroup);
  app.add_option("--lr-scale", texts.lr_scale)
      ->type_name("RULE")
      ->description("times 1, global batch / --batch-size, or its root: none, linear, sqrt [none]")
      ->group(kRateGroup);
  app.add_option("--sched", texts.sched)
      ->type_name("NAME")
      ->description(
          "constant, step, multistep, exponential, cosine, poly, onecycle, plateau [constant]")
      ->group(kRateGroup);
  app.add_flag(
         "--sched-on-updates", texts.schedule.on_updates,
         "change it at every step instead of every epoch")
      ->group(kRateGroup);
}

void add_warmup_flags(CLI::App& app, LrSettings& schedule) {
  app.add_option("--warmup-epochs", schedule.warmup_epochs)
      ->type_name("N")
      ->description("in which it rises to --lr, before the schedule begins [0]")
      ->group(kRateGroup);
  app.add_option("--warmup-steps", schedule.warmup_steps)
      ->type_name("N")
      ->description("the same in steps; then the schedule too goes by steps")
      ->group(kRateGroup);
  app.add_option("--warmup-lr", schedule.warmup_lr)
      ->type_name("X")
      ->description("from which it rises [0.00001]")
      ->group(kRateGroup);
  app.add_option("--min-lr", schedule.min_lr)
      ->type_name("X")
      ->description("to which it falls at most [0]")
      ->group(kRateGroup);
}

void add_decay_flags(CLI::App& app, OptimizerTexts& texts) {
  LrSettings& schedule = texts.schedule;
  app.add_option("--decay-epochs", schedule.decay_epochs)
      ->type_name("N")
      ->description("of step: epochs that each rate lasts")
      ->group(kRateGroup);
  app.add_option("--decay-milestones", texts.decay_milestones)
      ->type_name("N,N")
      ->description("of multistep: epochs after which it falls")
      ->group(kRateGroup);
  app.add_option("--decay-rate", schedule.decay_rate)
      ->type_name("X")
      ->description("factor of each fall [0.1; exponential 0.9]")
      ->group(kRateGroup);
  app.add_option("--poly-power", schedule.power)
      ->type_name("X")
      ->description("of poly: exponent of what is left [1]")
      ->group(kRateGroup);
  app.add_option("--patience-epochs", schedule.patience_epochs)
      ->type_name("N")
      ->description("of plateau: evaluations without improvement let pass [10]")
      ->group(kRateGroup);
  app.add_option("--cooldown-epochs", schedule.cooldown_epochs)
      ->type_name("N")
      ->description("of plateau: evaluations not counted after a fall [0]")
      ->group(kRateGroup);
}

void add_one_cycle_flags(CLI::App& app, LrSettings& schedule) {
  app.add_option("--pct-start", schedule.pct_start)
      ->type_name("X")
      ->description("of onecycle: share of the training in which it rises [0.3]")
      ->group(kRateGroup);
  app.add_option("--div-factor", schedule.div_factor)
      ->type_name("X")
      ->description("of onecycle: --lr / the first rate [25]")
      ->group(kRateGroup);
  app.add_option("--final-div-factor", schedule.final_div_factor)
      ->type_name("X")
      ->description("of onecycle: the first rate / the last [10000]")
      ->group(kRateGroup);
}

std::vector<std::int64_t> milestones_of(const std::string& text) {
  std::vector<std::int64_t> milestones;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t epoch = 0;
    const auto [after, error] = std::from_chars(at, end, epoch);
    const bool goes_on = after != end && *after == ',' && after + 1 != end;
    check(
        error == std::errc() && (after == end || goes_on),
        "train: --decay-milestones must be epochs with commas between them: ", text);
    milestones.push_back(epoch);
    at = goes_on ? after + 1 : after;
  }
  return milestones;
}

LrSettings schedule_of(const OptimizerTexts& texts) {
  LrSettings settings = texts.schedule;
  settings.kind = choose(
      "--sched", texts.sched,
      {LrScheduleKind::kConstant, LrScheduleKind::kStep, LrScheduleKind::kMultistep,
       LrScheduleKind::kExponential, LrScheduleKind::kCosine, LrScheduleKind::kPolynomial,
       LrScheduleKind::kOneCycle, LrScheduleKind::kPlateau});
  settings.decay_milestones = milestones_of(texts.decay_milestones);
  return settings;
}

}  // namespace

void add_optimizer_flags(CLI::App& app, OptimizerTexts& texts) {
  add_step_rule_flags(app, texts);
  add_rate_flags(app, texts);
  add_warmup_flags(app, texts.schedule);
  add_decay_flags(app, texts);
  add_one_cycle_flags(app, texts.schedule);
}

OptimizerSettings optimizer_of(const OptimizerTexts& texts) {
  const auto kind = choose(
      "--opt", texts.opt, {OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kAdamW});
  OptimizerSettings settings = default_settings(kind);
  settings.lr = texts.lr.value_or(settings.lr);
  settings.momentum = texts.momentum.value_or(settings.momentum);
  settings.weight_decay = texts.weight_decay.value_or(settings.weight_decay);
  settings.weight_decay_on =
      choose("--weight-decay-on", texts.weight_decay_on, {DecayOn::kAll, DecayOn::kWeights});
  settings.clip_grad = texts.clip_grad;
  settings.sharded = texts.shard_optimizer;
  settings.lr_scale =
      choose("--lr-scale", texts.lr_scale, {LrScale::kNone, LrScale::kLinear, LrScale::kSqrt});
  settings.schedule = schedule_of(texts);
  return settings;
}

}  // namespace lockstep::cli
