#include "lockstep/train/options/options.h"

#include <ctime>

#include "lockstep/core/error.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep {

const char* name_of(Parallel value) {
  switch (value) {
    case Parallel::kSerial:
      return "serial";
    case Parallel::kDp:
      return "dp";
    case Parallel::kDdp:
      return "ddp";
    case Parallel::kMp:
      return "mp";
    case Parallel::kPp:
      return "pp";
    case Parallel::kDdpMp:
      return "ddp+mp";
    case Parallel::kDdpPp:
      return "ddp+pp";
  }
  return "?";
}

const char* name_of(Balance value) {
  if (value == Balance::kCount) return "count";
  return value == Balance::kSize ? "size" : "time";
}

const char* name_of(ProgressStyle value) {
  switch (value) {
    case ProgressStyle::kAuto:
      return "auto";
    case ProgressStyle::kBar:
      return "bar";
    case ProgressStyle::kLine:
      return "line";
    case ProgressStyle::kNone:
      return "none";
  }
  return "auto";
}

namespace {

void check_at_least(const char* flag, std::int64_t least, std::int64_t value) {
  check(value >= least, "train: ", flag, " must be at least ", least, ": ", value);
}

void check_share(const char* flag, double value) {
  check(value >= 0 && value < 1, "train: ", flag, " must be at least 0 and below 1: ", value);
}

void check_learning(const TrainOptions& options) {
  check_share("--smoothing", options.smoothing);
  if (options.ema) check_share("--model-ema-decay", options.ema->decay);
  check(
      options.optimizer.schedule.kind != LrScheduleKind::kPlateau || options.val_interval > 0,
      "train: --sched plateau follows the evaluations, but --val-interval 0 makes none before the "
      "end");
}

void check_snapshots(const SnapshotSettings& settings) {
  check_at_least("--keep", 1, settings.keep);
  check(
      settings.unit == SnapshotUnit::kNone || settings.unit == SnapshotUnit::kNever ||
          settings.count > 0,
      "train: the time between snapshots must be above 0: ", settings.count);
}

}  // namespace

void check_options(const TrainOptions& options, int world_size) {
  check_at_least("--repeat", 1, options.repeat);
  check_at_least("--num-classes", 1, options.classes.value_or(1));
  check_at_least("--batch-size", 1, options.batch_size);
  check_at_least("--seed", 0, options.seed);
  check_at_least("--epochs", 1, options.limits.epochs.value_or(1));
  check_at_least("--max-steps", 1, options.limits.steps.value_or(1));
  check_at_least("--limit-train-batches", 1, options.limit_train_batches.value_or(1));
  check(
      options.val_interval >= -1,
      "train: --val-interval must be at least 0, or never: ", options.val_interval);
  check_at_least("--log-interval", 1, options.log_interval);
  check_at_least("--chunks", 1, options.pipeline.chunks.value_or(1));
  check_at_least("--stages", 1, options.pipeline.stages.value_or(1));
  check_at_least("--stages-per-place", 1, options.pipeline.stages_a_worker.value_or(1));
  check_at_least("--grad-accum-steps", 1, options.grad_accum_steps);
  check_optimizer(options.optimizer, options.limits);
  check_learning(options);
  check_loading(options.loading);
  check_snapshots(options.snapshots);
  plan_layout(options, world_size);
}

std::string default_output(const TrainOptions& options, std::int64_t unix_time) {
  const auto time = static_cast<std::time_t>(unix_time);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return concat("runs/", text, "-", options.model, "-", name_of(options.parallel));
}

}  // namespace lockstep
