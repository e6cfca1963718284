#include <filesystem>
#include <iostream>
#include <string>

#include "bench/experiment/trials.h"
#include "bench/studies/scale_out/study.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "pretrained";

std::string file_name(const StudyOptions& options) {
  return trainer_plan(options).model + ".safetensors";
}

bool measures_something(const StudyOptions& options) {
  for (const Point& point : grid(options))
    if (cell_of(point, options).not_measurable.empty()) return true;
  return false;
}

// Whole or not there: another start finds it by its name.
void keep(const fs::path& weights, const fs::path& file) {
  fs::create_directories(file.parent_path());
  fs::rename(weights, file);
}

std::string first_device(const std::string& devices) {
  return devices.substr(0, devices.find(','));
}

}  // namespace

std::string first_weights(const StudyOptions& options) {
  if (!options.pretrained.empty() || !options.pretrains) return options.pretrained;
  return concat(kBenchFolder, "/", kFolder, "/", file_name(options));
}

StudyCell pretraining_cell(const StudyOptions& options) {
  const TrainerPlan plan = trainer_plan(options);
  const Pretraining& how = plan.pretraining;
  const StudyCell cell{.id = concat("pretraining-", plan.model),
      .command = train_command("--model", plan.model, data_words(options), "--image-size",
          how.image_size, "--parallel", "serial", "--batch-size", plan.batch, "--opt",
          how.optimizer, "--lr", how.rate, "--clip-grad", 1, "--max-steps", how.steps, "--max-time",
          how.time, "--val-interval", 0, "--snapshot-interval", "never", "--progress", "none")};
  return on_device(cell, first_device(options.device));
}

void pretrain(const StudyOptions& options, const CellPaths& paths) {
  const fs::path file = paths.bench / kFolder / file_name(options);
  const bool is_ours = options.pretrained.empty() && options.pretrains;
  if (!is_ours || fs::exists(file) || !measures_something(options)) return;
  const Pretraining how = trainer_plan(options).pretraining;
  std::cerr << "lockstep bench: scale-out: training the weights that all cells begin with, at most "
            << how.time << std::endl;
  Trials trials(paths, "scale-out");
  const StudyCell cell = pretraining_cell(options);
  const fs::path run = trials.run_of(cell);
  const std::string reason =
      failure_reason(trials.run(cell, run, how.limit_seconds), how.limit_seconds);
  if (!reason.empty())
    throw Error(concat("bench: the weights to begin with could not be trained: ", reason, "; see ",
        trials.log_of(cell).string()));
  keep(run / "model.safetensors", file);
  fs::remove_all(run);
}

}  // namespace lockstep::bench::scale_out
