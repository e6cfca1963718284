#include "lockstep/cli/train/train_flags.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/choose.h"
#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/flags/launch_arguments.h"
#include "lockstep/cli/train/train_flag_texts.h"
#include "lockstep/core/error.h"
#include "lockstep/train/options/duration.h"

namespace lockstep::cli {
namespace {

Parallel parallel_of(const std::optional<std::string>& word, bool several) {
  if (!word) return several ? Parallel::kDdp : Parallel::kSerial;
  return choose(
      "--parallel", *word,
      {Parallel::kSerial, Parallel::kDp, Parallel::kDdp, Parallel::kMp, Parallel::kPp,
       Parallel::kDdpMp, Parallel::kDdpPp});
}

PipelineSettings pipeline_of(const FlagTexts& texts) {
  PipelineSettings settings = texts.pipeline;
  if (texts.schedule) {
    settings.schedule = choose(
        "--schedule", *texts.schedule,
        {ScheduleKind::kSequential, ScheduleKind::kGPipe, ScheduleKind::k1F1B,
         ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble});
  }
  settings.balance =
      choose("--balance", texts.balance, {Balance::kTime, Balance::kSize, Balance::kCount});
  settings.checkpoint = choose(
      "--checkpoint", texts.checkpoint,
      {Checkpoint::kNever, Checkpoint::kExceptLast, Checkpoint::kAlways});
  return settings;
}

Precision precision_of(const std::string& word) {
  return choose("--precision", word, {Precision::k32, Precision::kBf16Mixed, Precision::k16Mixed});
}

std::vector<std::string> patterns_of(const std::optional<std::string>& text) {
  std::vector<std::string> patterns;
  if (!text) return patterns;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text->find(',', begin);
    patterns.push_back(text->substr(begin, end - begin));
    check(
        !patterns.back().empty(), "train: --freeze takes patterns with a comma between them: '",
        *text, "'");
  }
  return patterns;
}

DataSource data_of(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return {.name = text};
  check(colon + 1 < text.size(), "train: --data has no folder after the colon: ", text);
  return {.name = text.substr(0, colon), .directory = text.substr(colon + 1)};
}

std::optional<int> workers_of(const std::string& text) {
  if (text == "auto") return std::nullopt;
  const bool number =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  check(number, "train: --workers must be a number, or auto: ", text);
  return std::stoi(text);
}

LoadingSettings loading_of(const LoadingTexts& texts) {
  LoadingSettings settings = texts.settings;
  settings.augment =
      choose("--augment", texts.augment, {Augment::kNone, Augment::kCropFlip, Augment::kTimm});
  settings.bad_images =
      choose("--bad-images", texts.bad_images, {BadImages::kFail, BadImages::kSkip});
  settings.workers = workers_of(texts.workers);
  return settings;
}

TrainLimits limits_of(const FlagTexts& texts) {
  TrainLimits limits{.epochs = texts.epochs, .steps = texts.max_steps};
  if (texts.max_time) limits.seconds = parse_duration(*texts.max_time);
  if (!limits.epochs && !limits.steps && !limits.seconds) limits.epochs = 3;
  return limits;
}

void check_ranks_started(const std::optional<std::string>& asked, const TrainSurroundings& around) {
  if (!asked || *asked == "auto" || *asked == "cpu") return;
  std::size_t digits = 0;
  const bool number =
      asked->find_first_not_of("0123456789") == std::string::npos && asked->size() < 7;
  const int ranks = number && !asked->empty() ? std::stoi(*asked, &digits) : 0;
  check(ranks > 0, "train: --nproc-per-node must be a number above 0, or auto: ", *asked);
  check(
      ranks == around.local_world_size, "train: --nproc-per-node is ", ranks, ", but ",
      around.local_world_size,
      " were started here; start them with: lockstep train --nproc-per-node ", ranks);
}

void check_names(const TrainOptions& options) {
  const std::vector<std::string> backends = {"auto", "shm", "gloo"};
  if (std::find(backends.begin(), backends.end(), options.backend) == backends.end()) {
    refuse_word("--backend", options.backend, backends);
  }
}

void resolve(TrainCommand& command, const FlagTexts& texts, const TrainSurroundings& around) {
  TrainOptions& options = command.options;
  check_ranks_started(texts.nproc_per_node, around);
  check_names(options);
  options.data = data_of(texts.data);
  options.loading = loading_of(texts.loading);
  options.parallel =
      parallel_of(texts.parallel, around.world_size > 1 || options.places.value_or(1) > 1);
  options.pipeline = pipeline_of(texts);
  options.freeze = patterns_of(texts.freeze);
  options.precision = precision_of(texts.precision);
  options.optimizer = optimizer_of(texts.optimizer);
  options.ema = ema_of(texts.averages);
  options.eval_metric = eval_metric_of(texts.averages);
  options.limits = limits_of(texts);
  options.snapshots = snapshots_of(texts.snapshots);
  options.resume = resume_of(texts.snapshots, around.restart_count);
  options.progress = choose(
      "--progress", texts.progress,
      {ProgressStyle::kAuto, ProgressStyle::kBar, ProgressStyle::kLine, ProgressStyle::kNone});
  check_options(options, around.world_size);
  if (options.output.empty()) options.output = default_output(options, around.unix_time);
}

}  // namespace

std::string train_help() {
  CLI::App app;
  FlagTexts texts;
  TrainCommand command;
  add_train_flags(app, texts, command);
  return app.help();
}

std::optional<TrainCommand> parse_train_flags(
    const std::vector<std::string>& arguments, const TrainSurroundings& surroundings) {
  CLI::App app;
  FlagTexts texts;
  TrainCommand command;
  add_train_flags(app, texts, command);
  std::vector<std::string> flags;
  for (const auto& argument : arguments) flags.push_back(canonical_flag(argument));
  if (!parse_flags(app, "train", flags)) return std::nullopt;
  resolve(command, texts, surroundings);
  return command;
}

}  // namespace lockstep::cli
