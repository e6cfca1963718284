#include "lockstep/train/options/options.h"

#include <algorithm>
#include <ctime>

#include "lockstep/core/error.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep {
namespace {

constexpr int kMostWorkersUnasked = 8;

}  // namespace

int workers_of(const LoadingSettings& settings, int cores, bool is_mere_copy) {
  if (settings.workers) return *settings.workers;
  if (is_mere_copy || cores < 2) return 0;
  return std::min(cores / 2, kMostWorkersUnasked);
}

bool is_replicated_stages(Parallel way) {
  return way == Parallel::kDdpMp || way == Parallel::kDdpPp;
}

ScheduleKind schedule_of(const TrainOptions& options) {
  const bool sequential = options.parallel == Parallel::kMp || options.parallel == Parallel::kDdpMp;
  if (sequential) return ScheduleKind::kSequential;
  return options.pipeline.schedule.value_or(ScheduleKind::k1F1B);
}

int chunks_of(const TrainOptions& options) {
  const bool sequential = schedule_of(options) == ScheduleKind::kSequential;
  return options.pipeline.chunks.value_or(sequential ? 1 : kDefaultChunks);
}

namespace {

void check_snapshots(const SnapshotSettings& snapshots) {
  check(snapshots.unit == SnapshotUnit::kNone || snapshots.unit == SnapshotUnit::kNever ||
            snapshots.count > 0,
      "train: the time between snapshots must be above 0: ", snapshots.count);
  const SnapshotSettings usual;
  check(
      snapshots.unit != SnapshotUnit::kNever ||
          (!snapshots.required && snapshots.copies == usual.copies && snapshots.keep == usual.keep),
      "train: --snapshot-required, --snapshot-copies and --keep are about snapshots, and "
      "--snapshot-interval never makes none");
}

}  // namespace

void check_options(const TrainOptions& options, int world_size) {
  train_flags().check_ranges(options);
  check_optimizer(options.optimizer, options.limits);
  check(options.optimizer.schedule.kind != LrScheduleKind::kPlateau || options.val_interval > 0,
      "train: --sched plateau needs evaluations during training, but --val-interval 0 makes none "
      "before the end");
  check(options.smoothing == 0 || options.loss == nn::kCrossEntropy,
      "train: --smoothing is for --loss cross-entropy, not for ", options.loss);
  check(options.eval_metric == EvalMetric::kLoss || options.val_interval >= 0,
      "train: --eval-metric compares evaluations, and --val-interval never makes none");
  check_snapshots(options.snapshots);
  plan_layout(options, world_size);
}

std::string precision_text(const TrainOptions& options) {
  return concat(name_of(options.precision), options.auto_precision ? " (auto)" : "");
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
