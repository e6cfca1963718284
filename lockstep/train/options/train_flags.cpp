#include "lockstep/train/options/train_flags.h"

#include "lockstep/core/byte_size.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/snapshot/snapshot_interval.h"

namespace lockstep {

namespace {

using Options = TrainOptions;
using Group = FlagGroup<TrainOptions>;
using Text = const std::string&;

constexpr double kMostClasses = 100'000'000;
constexpr double kMostRepeats = 100'000;

constexpr const char* kExamples = R"(Examples:
  lockstep train                                    mnist-small on Fashion-MNIST, 3 epochs, one rank
  lockstep train --nproc-per-node 2 --precision auto
                                                    two ranks, each with 128 images per step
  lockstep train --data mnist:/data/mnist --opt sgd --lr 0.05 --lr-scale linear --nproc-per-node 4
  lockstep train --parallel pp --places 2 --chunks 8 --schedule zero-bubble
                                                    the model in two stages, each on half the cores
  lockstep train --parallel ddp+pp --nproc-per-node 4 --stages 2
                                                    two pipelines of two ranks
  lockstep train --model mnist-large --max-time 30m --output runs/large
  lockstep train --model mnist-large --max-time 2h --output runs/large --resume auto
                                                    continue that run from its newest snapshot
  lockstep train --nproc-per-node 2 --dry-run       show what would be done, and stop

Exit codes: 0 done, 2 bad flags, 3 bad data or snapshot, 4 disk or memory, 5 peers lost, 6 loss became NaN or Inf,
75 stopped by a signal with a complete snapshot: run again with --resume auto.)";

void read_data(Options& options, const FlagSpec& flag, Text text) {
  const auto colon = text.find(':');
  check(colon + 1 != text.size(), flag.verb, ": ", flag.name,
      " has no folder after the colon: ", text);
  options.data.name = text.substr(0, colon);
  options.data.directory.clear();
  if (colon != std::string::npos) options.data.directory = text.substr(colon + 1);
}

FlagValue written_data(const Options& options) {
  const DataSource& data = options.data;
  return data.directory.empty() ? data.name : data.name + ":" + data.directory;
}

Group model_group() {
  return {"What to train",
      {flag("--model", "NAME", joined(nn::model_names()) + ", or one of --plugin", &Options::model),
          flag("--plugin", "FILE", "shared library with models of your own (docs/plugins.md)",
              &Options::plugin)
              .may_change(),
          flag("--pretrained", "FILE",
              "start from these weights: .safetensors, or Python's .pt or .pth",
              &Options::pretrained)
              .may_change(),
          flag("--freeze", "PATTERN[,PATTERN]",
              "parameters that are not trained, by name: features.*", &Options::freeze),
          flag_by<Options>("--data", "NAME[:DIR]",
              "fashion-mnist, mnist, cifar10, cifar100, images, mock, mock:constant, mock:fresh or "
              "one "
              "of --plugin; in the folder DIR",
              read_data, written_data),
          flag("--classes", "NAME,NAME",
              "of images: only these class folders, numbered in this order", &Options::data,
              &DataSource::classes)
              .usually("all, numbered by name"),
          flag("--num-classes", "N", "classes of the model", &Options::classes)
              .from(1)
              .to(kMostClasses)
              .usually("those of the data"),
          flag("--repeat", "N", "go through the training set N times an epoch", &Options::repeat)
              .from(1)
              .to(kMostRepeats),
          flag("--seed", "N", "seed of the initial weights, of shuffling and of augmentation",
              &Options::seed)
              .from(0)}};
}

void read_workers(Options& options, const FlagSpec& flag, Text text) {
  options.loading.workers.reset();
  if (text != flag.other_word) read_value(flag, text, options.loading.workers);
}

void read_cache(Options& options, const FlagSpec& flag, Text text) {
  try {
    options.loading.cache_decoded = parse_bytes(text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(flag.verb, ": ", flag.name, ": ", error.what()));
  }
}

Group image_group() {
  using Set = LoadingSettings;
  return {"How images are read",
      {flag("--augment", "HOW", "augmentation of training images: {}", &Options::loading,
           &Set::augment),
          flag("--image-size", "N", "height and width that the model sees", &Options::loading,
              &Set::image_size)
              .from(1)
              .to(16384)
              .usually("images 224; others as they are"),
          flag("--val-split", "X", "share of the training set to validate on, drawn by the seed",
              &Options::loading, &Set::val_split)
              .from(0)
              .below(1),
          flag("--bad-images", "WHAT",
              "on files that cannot be decoded: {}; skip takes another image", &Options::loading,
              &Set::bad_images)
              .may_change(),
          flag_by<Options>("--workers", "N", "threads of each rank that prepare batches",
              read_workers,
              [](const Options& options) { return written_value(options.loading.workers); })
              .may_change()
              .letter("-j")
              .whole()
              .from(0)
              .to(256)
              .or_word("auto")
              .usually("auto: half of its cores, 0 for one core"),
          flag_by<Options>("--cache-decoded", "BYTES",
              "for images: memory of each rank for decoded images, such as 2G; later epochs do not "
              "decode them",
              read_cache,
              [](const Options& options) { return written_value(options.loading.cache_decoded); })
              .may_change()
              .unless_usual()}};
}

Group limit_group() {
  using Set = TrainLimits;
  const TrainOptions usual;
  return {"How long (the first that is reached ends it)",
      {flag("--epochs", "N", "passes over the data", &Options::limits, &Set::epochs)
              .may_change()
              .from(1)
              .to(kMostEpochs)
              .usually(concat(*usual.limits.epochs, ", unless another limit is given")),
          flag("--max-steps", "N", "optimizer steps", &Options::limits, &Set::steps)
              .may_change()
              .from(1)
              .to(kMostSteps),
          flag_by<Options>(
              "--max-time", "TIME", "training time over all restarts: 90s, 30m, 2h, 1h30m",
              [](Options& options, const FlagSpec&, Text text) {
                options.limits.seconds = parse_duration(text);
              },
              [](const Options& options) {
                const auto& seconds = options.limits.seconds;
                return seconds ? FlagValue(text_of(*seconds) + "s") : FlagValue();
              })
              .may_change(),
          flag("--limit-train-batches", "N", "use at most this many batches per epoch",
              &Options::limit_train_batches)
              .from(1)
              .to(kMostSteps)}};
}

void read_resume(Options& options, const FlagSpec&, Text text) {
  const bool is_named = text != "auto" && text != "never";
  options.resume.kind = text == "auto" ? Resume::kAuto : Resume::kNever;
  if (is_named) options.resume.kind = Resume::kFrom;
  options.resume.from = is_named ? text : "";
}

FlagValue written_resume(const Options& options) {
  if (options.resume.kind == Resume::kFrom) return options.resume.from;
  return std::string(options.resume.kind == Resume::kAuto ? "auto" : "never");
}

void read_interval(Options& options, const FlagSpec&, Text text) {
  const SnapshotInterval interval = parse_snapshot_interval(text);
  options.snapshots.unit = interval.unit;
  options.snapshots.count = interval.count;
}

FlagValue written_interval(const Options& options) {
  const SnapshotSettings& set = options.snapshots;
  if (set.unit == SnapshotUnit::kOverhead) return {};
  return snapshot_interval_text({set.unit, set.count});
}

void read_overhead(Options& options, const FlagSpec&, Text text) {
  options.snapshots.unit = SnapshotUnit::kOverhead;
  options.snapshots.count = parse_snapshot_overhead(text);
}

FlagValue written_overhead(const Options& options) {
  if (options.snapshots.unit != SnapshotUnit::kOverhead) return {};
  return text_of(100 * options.snapshots.count) + "%";
}

Group snapshot_group() {
  using Set = SnapshotSettings;
  return {"Snapshots",
      {flag_by<Options>("--resume", "WHEN",
           "auto: continue from the newest snapshot in --output; never; DIR: from that run or "
           "snapshot",
           read_resume, written_resume)
              .may_change(),
          flag_on("--overwrite",
              "replace a run in --output that is not resumed, instead of refusing to start",
              &Options::resume, &ResumeSettings::overwrite)
              .may_change(),
          flag_by<Options>("--snapshot-interval", "TIME",
              "500steps, 2epochs, 600s; none: only one at the end; never", read_interval,
              written_interval)
              .may_change()
              .usually("chosen by the overhead"),
          flag_by<Options>("--snapshot-overhead", "PERCENT",
              "share of the time to spend on snapshots; sets the interval, at least 30 s",
              read_overhead, written_overhead)
              .may_change(),
          flag("--keep", "N", "newest snapshots to keep; the best one is kept as well",
              &Options::snapshots, &Set::keep)
              .may_change()
              .from(1)
              .to(kMostEpochs),
          flag("--snapshot-copies", "N",
              "hosts that keep each snapshot whole, on their own disks; 0: they share --output",
              &Options::snapshots, &Set::copies)
              .may_change()
              .from(0)
              .to(kMostEpochs),
          flag_on("--snapshot-required",
              "end the run when a snapshot cannot be written, instead of warning",
              &Options::snapshots, &Set::required)
              .may_change(),
          flag_off("--no-rescue",
              "ranks that survive the death of others do not save what was trained until then",
              &Options::snapshots, &Set::rescue)
              .may_change()}};
}

void read_val_interval(Options& options, const FlagSpec& flag, Text text) {
  options.val_interval = -1;
  if (text != flag.other_word) read_value(flag, text, options.val_interval);
}

FlagValue written_val_interval(const Options& options) {
  if (options.val_interval == -1) return std::string("never");
  return options.val_interval;
}

Group output_group() {
  return {"What it writes and shows",
      {flag("--output", "DIR",
           "the run's folder: new or empty, or with --resume auto an existing run's",
           &Options::output)
              .may_change()
              .usually("runs/TIME-MODEL-HOW"),
          flag_by<Options>("--val-interval", "N",
              "epochs between evaluations; 0: only at the end; or never", read_val_interval,
              written_val_interval)
              .may_change()
              .whole()
              .from(0)
              .to(kMostEpochs)
              .or_word("never"),
          flag(
              "--log-interval", "N", "steps between lines of metrics.jsonl", &Options::log_interval)
              .may_change()
              .from(1)
              .to(kMostSteps),
          flag_on("--tensorboard",
              "write what metrics.jsonl has for TensorBoard too, into RUN/tensorboard",
              &Options::tensorboard)
              .may_change(),
          flag_on("--profile",
              "measure where the time of 10 steps goes, after 3, on accelerators 13; into "
              "RUN/profile",
              &Options::profile)
              .may_change()
              .unless_usual(),
          flag("--progress", "STYLE", "{}; auto: bar on a terminal", &Options::progress)
              .may_change(),
          flag_by<Options>("--dry-run", "", "check everything, print the plan, write nothing"),
          flag_by<Options>("--json", "", "end stdout with the summary as one JSON object")}};
}

}  // namespace

const FlagTable<TrainOptions>& train_flags() {
  static const FlagTable<TrainOptions> kTable(
      {.verb = "train",
          .usage = "lockstep train [flags]",
          .description = "Trains a model on labelled images, on one rank or on several.\n",
          .footer = kExamples},
      {model_group(), image_group(), spreading_group(), stages_group(), launch_group(),
          optimizer_group(), rate_group(), average_group(), limit_group(), snapshot_group(),
          output_group()});
  return kTable;
}

}  // namespace lockstep
