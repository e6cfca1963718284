#include "lockstep/train/evaluation/run_weights.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

fs::path weights_file(const std::string& folder, Which which) {
  return fs::path(folder) / (which == Which::kBest ? "best.safetensors" : "model.safetensors");
}

// What the trainer wrote into the file beside the tensors.
std::string remark_in(const fs::path& file) {
  std::vector<std::string> facts;
  for (const auto& [name, value] : read_safetensors(file).metadata())
    facts.push_back(concat(name, " ", value));
  return joined(facts);
}

WeightsSource source_in(const std::string& folder, Which which) {
  const fs::path file = weights_file(folder, which);
  return {.file = file.string(), .which = name_of(which), .remark = remark_in(file)};
}

}  // namespace

TrainOptions options_of_run(const std::string& folder) {
  const fs::path file = fs::path(folder) / "config.toml";
  if (!fs::is_directory(folder)) throw DataError(concat(folder, ": there is no such folder"));
  std::ifstream stream(file);
  if (!stream) throw DataError(concat(folder, ": holds no config.toml, so it is no run's folder"));
  std::ostringstream text;
  text << stream.rdbuf();
  return recorded_options(text.str(), file.string());
}

TrainOptions evaluation_options(const TrainOptions& run) {
  return {.model = run.model,
      .plugin = run.plugin,
      .data = run.data,
      .classes = run.classes,
      .loading = {.image_size = run.loading.image_size,
          .bad_images = run.loading.bad_images,
          .val_split = run.loading.val_split},
      .batch_size = run.batch_size,
      .precision = run.precision,
      .tf32 = run.tf32,
      .kernels = run.kernels,
      .loss = run.loss,
      .seed = run.seed};
}

WeightsSource weights_of_run(const std::string& folder, std::optional<Which> which) {
  for (const Which each : {Which::kBest, Which::kLast})
    if (which.value_or(each) == each && fs::exists(weights_file(folder, each)))
      return source_in(folder, each);
  const std::string missing =
      which ? concat("has no ", weights_file("", *which).string())
            : std::string("has neither best.safetensors nor model.safetensors");
  throw DataError(concat(folder, ": ", missing,
      "; a run writes best.safetensors with its first evaluation and model.safetensors at its end. "
      "Those of a snapshot are given by --weights: ",
      folder, "/snapshots/STEP/model.safetensors"));
}

}  // namespace lockstep
