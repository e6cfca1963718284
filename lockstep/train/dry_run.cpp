#include "lockstep/train/dry_run.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/parameters.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/state/epoch_position.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/sample_form.h"
#include "lockstep/train/strategy/start_weights.h"
#include "lockstep/train/strategy/turns.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {

namespace {

std::int64_t available_memory() {
  return 1024 * keyed_number(text_in("/proc/meminfo"), "MemAvailable:").value_or(0);
}

void count_parameters(const torch::nn::Module& model, TrainPlan& plan) {
  for (const torch::Tensor& parameter : parameters_of(model)) {
    const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
    plan.parameters += parameter.numel();
    plan.parameter_bytes += bytes;
    if (parameter.requires_grad()) plan.trained_bytes += bytes;
  }
}

std::string text_of(const StartWeights& start) {
  const bool has_both = !start.remark.empty() && !start.warning.empty();
  return concat(start.remark, has_both ? "\n" : "", start.warning);
}

void check_memory(const TrainPlan& plan, int local_world_size) {
  const std::int64_t needed = bytes_a_rank(plan) * local_world_size;
  if (plan.available_bytes == 0 || needed <= plan.available_bytes) return;
  throw std::system_error(ENOMEM, std::generic_category(),
      concat("train: the ranks here need at least ", needed / 1000000, " MB, but only ",
          plan.available_bytes / 1000000, " MB are available"));
}

}  // namespace

TrainPlan dry_run(const TrainOptions& options, int world_size, int local_world_size) {
  check_options(options, world_size);
  check_run_directory(options.output, options.resume);
  const Datasets data = load_datasets(options);
  const SampleForm form = sample_form(*data.train, model_outputs(options, data));
  nn::Model model = make_net(options, form);
  const TaskPointer task = make_task(options, form, model);
  const Layout layout = plan_layout(options, world_size);
  check_inputs(options, layout, form, model);
  check_task(options, form, *task, model);
  check_stages(options, layout, model);
  const StartWeights start = start_with(model, options);
  const Turns turns(model.ptr());  // refuses what they cannot share out
  TrainPlan plan{.options = options,
      .world_size = world_size,
      .train_samples = data.train->size(),
      .test_samples = data.test->size(),
      .data_bytes = data.bytes_in_memory,
      .available_bytes = available_memory(),
      .data_remark = data.remark,
      .start = text_of(start)};
  count_parameters(*model, plan);
  check_memory(plan, local_world_size);
  rehearse(options, form, *task, model, start,
      to_rehearse(options, layout, epoch_rule(options, layout, data.train->size())));
  return plan;
}

namespace {

Layout layout_of(const TrainPlan& plan) { return plan_layout(plan.options, plan.world_size); }

std::string megabytes(std::int64_t bytes) { return concat((bytes + 999999) / 1000000, " MB"); }

std::string duration_of(const TrainPlan& plan) {
  const TrainLimits& limits = plan.options.limits;
  std::string text;
  const auto add = [&text](
                       const std::string& limit) { text += (text.empty() ? "" : " or ") + limit; };
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

std::int64_t batches_a_step(const TrainPlan& plan) {
  return plan.options.grad_accum_steps * layout_of(plan).replicas;
}

std::string rate_of(const TrainPlan& plan) {
  const OptimizerSettings& settings = plan.options.optimizer;
  const double lr = scaled_lr(settings, batches_a_step(plan));
  const LrSchedule schedule =
      make_lr_schedule(settings.schedule, lr, plan.options.limits, steps_an_epoch(plan));
  std::string text = concat(lr);
  if (schedule.kind != LrScheduleKind::kConstant) text += concat(", ", name_of(schedule.kind));
  if (schedule.warmup > 0)
    text += concat(" after ", schedule.warmup, schedule.steps_a_tick == 1 ? " steps" : " epochs",
        " of warm-up");
  return text;
}

std::string batch_of(const TrainPlan& plan) {
  const std::int64_t batch = plan.options.batch_size;
  const std::int64_t accumulated = plan.options.grad_accum_steps;
  return concat(batch, " on each replica, ",
      accumulated == 1 ? "" : concat(accumulated, " times a step, "), batch * batches_a_step(plan),
      " in all");
}

std::string optimizer_of(const TrainPlan& plan) {
  const OptimizerSettings& settings = plan.options.optimizer;
  std::string text = concat(name_of(settings.kind), ", learning rate ", rate_of(plan));
  if (settings.momentum > 0) text += concat(", momentum ", settings.momentum);
  if (settings.eps) text += concat(", epsilon ", *settings.eps);
  if (settings.betas)
    text += concat(", betas ", settings.betas->first, " and ", settings.betas->second);
  if (settings.clip_grad) text += concat(", gradients clipped to ", *settings.clip_grad);
  if (settings.sharded) text += concat(", sharded over ", layout_of(plan).replicas, " replicas");
  if (settings.weight_decay > 0) text += concat(", weight decay ", settings.weight_decay);
  if (plan.options.ema) text += concat(", averaged with decay ", plan.options.ema->decay);
  return text;
}

std::string memory_of(const TrainPlan& plan) {
  std::string text = concat("at least ", megabytes(bytes_a_rank(plan)), " a rank, and activations");
  return plan.available_bytes == 0
             ? text
             : concat(text, "; ", megabytes(plan.available_bytes), " available");
}

std::string where(const TrainPlan& plan, const Layout& layout) {
  const int places = layout.thread_ranks * layout.places;
  const std::string ranks =
      plan.world_size == 1 ? "on one rank" : concat("on ", plan.world_size, " ranks");
  if (places == 1) return ranks;
  return concat(ranks, plan.world_size == 1 ? " in " : ", each in ", places, " places");
}

// Further lines of the value stand below its first.
std::string row(const char* name, std::string value) {
  char text[32];
  const int width = std::snprintf(text, sizeof text, "  %-10s ", name);
  const std::string margin(static_cast<std::size_t>(width), ' ');
  for (std::size_t end = 0; (end = value.find('\n', end)) != std::string::npos; ++end)
    value.insert(end + 1, margin);
  return text + value + "\n";
}

}  // namespace

std::int64_t steps_an_epoch(const TrainPlan& plan) {
  const EpochRule rule = epoch_rule(plan.options, layout_of(plan), plan.train_samples);
  return steps_of(batches_left(rule, {}));
}

std::int64_t bytes_a_rank(const TrainPlan& plan) {
  const OptimizerSettings& settings = plan.options.optimizer;
  const Layout layout = layout_of(plan);
  const std::int64_t values = plan.parameter_bytes * (plan.options.ema ? 2 : 1);
  const std::int64_t states = plan.trained_bytes * state_copies(settings);
  const std::int64_t of_replica =
      values + plan.trained_bytes + states / (settings.sharded ? layout.replicas : 1);
  return plan.data_bytes + of_replica / layout.ranks_a_replica() * layout.thread_ranks;
}

std::string plan_text(const TrainPlan& plan) {
  const TrainOptions& options = plan.options;
  const Layout layout = layout_of(plan);
  return concat("Would train ", options.model, " on ", options.data.name, ", ",
      name_of(options.parallel), " ", where(plan, layout), ", for ", duration_of(plan), ".\n",
      row("model", concat(options.model, ", ", plan.parameters, " parameters")),
      plan.start.empty() ? "" : row("start", plan.start),
      row("data", concat(plan.train_samples, " samples to train with, ", plan.test_samples,
                      " to test with", plan.data_remark.empty() ? "" : "\n", plan.data_remark)),
      row("batch", batch_of(plan)), row("spread", describe(options, layout)),
      row("steps", steps_of(plan)), row("optimizer", optimizer_of(plan)),
      row("precision", precision_text(options)), row("memory", memory_of(plan)),
      row("flags", unusual_flags(options)), row("output", options.output));
}

}  // namespace lockstep
