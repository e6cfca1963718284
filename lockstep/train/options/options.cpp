#include "lockstep/train/options/options.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iomanip>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep {
namespace {

// Whether a training in bfloat16 is likely the faster one. On a CPU its products must take half of
// float32's time, as our kernels of float32 save half of them in convolutions.
bool is_bf16_fast(const Computing& on) { return on.bf16_speed >= (on.on_accelerators ? 1.2 : 2); }

std::string times(double factor) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << factor << " times as ";
  return text.str();
}

std::string warning_about(Precision precision, const Computing& on) {
  if (precision == Precision::k16Mixed && !on.on_accelerators)
    return "--precision 16-mixed is for GPUs: on a CPU, bf16-mixed is faster and does not overflow";
  if (precision != Precision::kBf16Mixed || is_bf16_fast(on)) return "";
  const std::string how = on.bf16_speed > 0 ? concat("multiplies in bfloat16 only ",
                                                  times(on.bf16_speed), "fast as in float32")
                                            : "has no instructions to multiply in bfloat16";
  return concat("--precision bf16-mixed: ", on.on_accelerators ? "a device" : "a processor",
      " of this run ", how, ": --precision 32 is usually faster");
}

std::optional<CommHookKind> kind_named(const std::string& name) {
  for (const auto& entry : names_of(CommHookKind{}))
    if (entry.name == name) return entry.value;
  return std::nullopt;
}

std::int64_t number_of(const std::string& piece, std::int64_t least, const std::string& text) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const auto number = parse_number<std::int64_t>(piece);
  check(number && *number >= least && *number <= kMost, " powersgd:RANK:STEP has whole numbers, ",
      "RANK of at least 1, STEP of at least 0: ", text);
  return *number;
}

constexpr int kMostWorkersUnasked = 8;

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

PrecisionChoice choose_precision(
    const PrecisionRequest& asked, const Computing& on, std::optional<Precision> resumed) {
  PrecisionChoice choice;
  choice.precision = asked.precision;
  if (asked.is_auto)
    choice.precision = resumed.value_or(is_bf16_fast(on) ? Precision::kBf16Mixed : Precision::k32);
  choice.warning = warning_about(choice.precision, on);
  if (!asked.is_given && !resumed && is_bf16_fast(on))
    choice.hint = concat("this ", on.on_accelerators ? "device" : "processor", " multiplies ",
        times(on.bf16_speed),
        "fast in bfloat16: --precision bf16-mixed (or auto) is usually faster");
  return choice;
}

CommHookSettings parse_comm_hook(const std::string& text) {
  const std::vector<std::string> pieces = split(text, ':');
  const auto kind = kind_named(pieces.front());
  const std::size_t most = kind == CommHookKind::kPowerSgd ? 3 : 1;
  const auto names = all_names<CommHookKind>();
  check(kind && pieces.size() <= most, " must be one of ", joined(names), ", powersgd:RANK, ",
      "powersgd:RANK:STEP: ", text, did_you_mean(text, names));
  CommHookSettings settings{.kind = *kind};
  if (pieces.size() > 1) settings.rank = number_of(pieces[1], 1, text);
  if (pieces.size() > 2) settings.start_step = number_of(pieces[2], 0, text);
  return settings;
}

std::string comm_hook_text(const CommHookSettings& settings) {
  const std::string name = name_of(settings.kind);
  if (settings.kind != CommHookKind::kPowerSgd) return name;
  return concat(name, ":", settings.rank, ":", settings.start_step);
}

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

void check_options(const TrainOptions& options, int world_size) {
  train_flags().check_ranges(options);
  check_optimizer(options.optimizer, options.limits);
  check(options.optimizer.schedule.kind != LrScheduleKind::kPlateau || options.val_interval > 0,
      "train: --sched plateau needs evaluations during training, but --val-interval 0 makes none "
      "before the end");
  check(options.smoothing == 0 || options.loss.empty() || options.loss == nn::kCrossEntropy,
      "train: --smoothing is for --loss cross-entropy, not for ", options.loss);
  check(options.plugin_task.empty() || !options.plugin.empty(), "train: --task must be one of ",
      joined(all_names<TaskKind>()), ", or of a --plugin: ", options.plugin_task,
      did_you_mean(options.plugin_task, all_names<TaskKind>()));
  check(options.eval_metric == "loss" || options.val_interval >= 0,
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
  const std::filesystem::path model = options.model;
  const std::filesystem::path name =
      nn::is_exported(options.model) ? model.stem() : model.filename();
  return concat("runs/", text, "-", name.string(), "-", name_of(options.parallel));
}

}  // namespace lockstep
