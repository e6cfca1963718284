#include "lockstep/train/train_plan.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/core/error.h"
#include "lockstep/train/duration.h"

namespace lockstep {
namespace {

std::int64_t rounded_up(std::int64_t count, std::int64_t parts) {
  return (count + parts - 1) / parts;
}

std::string megabytes(std::int64_t bytes) { return concat(rounded_up(bytes, 1000000), " MB"); }

std::string duration_of(const TrainPlan& plan) {
  const TrainLimits& limits = plan.options.limits;
  std::string text;
  const auto add = [&text](const std::string& limit) {
    text += (text.empty() ? "" : " or ") + limit;
  };
  if (limits.epochs) add(concat(*limits.epochs, *limits.epochs == 1 ? " epoch" : " epochs"));
  if (limits.steps) add(concat(*limits.steps, *limits.steps == 1 ? " step" : " steps"));
  if (limits.seconds) add(format_duration(*limits.seconds));
  return text;
}

std::string steps_of(const TrainPlan& plan) {
  const TrainLimits& limits = plan.options.limits;
  std::string text = concat(steps_an_epoch(plan), " an epoch");
  if (!limits.epochs) return text;
  const std::int64_t all = *limits.epochs * steps_an_epoch(plan);
  return text + concat(", ", std::min(all, limits.steps.value_or(all)), " in all");
}

std::string optimizer_of(const TrainPlan& plan) {
  const OptimizerSettings& settings = plan.options.optimizer;
  std::string text =
      concat(name_of(settings.kind), ", learning rate ", scaled_lr(settings, plan.world_size));
  if (settings.momentum > 0) text += concat(", momentum ", settings.momentum);
  if (settings.weight_decay > 0) text += concat(", weight decay ", settings.weight_decay);
  return text;
}

std::string memory_of(const TrainPlan& plan) {
  std::string text = concat("at least ", megabytes(bytes_a_rank(plan)), " a rank, and activations");
  return plan.available_bytes == 0
             ? text
             : concat(text, "; ", megabytes(plan.available_bytes), " available");
}

std::string row(const char* name, const std::string& value) {
  char text[32];
  std::snprintf(text, sizeof text, "  %-10s ", name);
  return text + value + "\n";
}

}  // namespace

std::int64_t steps_an_epoch(const TrainPlan& plan) {
  const std::int64_t share = rounded_up(plan.train_samples, plan.world_size);
  const std::int64_t steps = rounded_up(share, plan.options.batch_size);
  return std::min(steps, plan.options.limit_train_batches.value_or(steps));
}

std::int64_t bytes_a_rank(const TrainPlan& plan) {
  const OptimizerSettings& settings = plan.options.optimizer;
  const int states = settings.kind == OptimizerKind::kSgd ? (settings.momentum > 0 ? 1 : 0) : 2;
  return plan.data_bytes + plan.parameters * 4 * (2 + states);
}

std::string plan_text(const TrainPlan& plan) {
  const TrainOptions& options = plan.options;
  const std::int64_t batch = options.batch_size;
  const std::string ranks =
      plan.world_size == 1 ? "on one rank" : concat("on ", plan.world_size, " ranks");
  return concat(
      "Would train ",
      options.model,
      " on ",
      options.data.name,
      ", ",
      name_of(options.parallel),
      " ",
      ranks,
      ", for ",
      duration_of(plan),
      ".\n",
      row("model", concat(options.model, ", ", plan.parameters, " parameters")),
      row("data",
          concat(
              plan.train_samples, " images to train with, ", plan.test_samples, " to test with")),
      row("batch", concat(batch, " on each replica, ", batch * plan.world_size, " in all")),
      row("steps", steps_of(plan)),
      row("optimizer", optimizer_of(plan)),
      row("precision", name_of(options.precision)),
      row("memory", memory_of(plan)),
      row("output", options.output));
}

}  // namespace lockstep
