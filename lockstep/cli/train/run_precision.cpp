#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/snapshot_names.h"
#include "lockstep/train/state/run_state.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::optional<Precision> precision_in(const Configuration& configuration) {
  for (const auto& [flag, value] : configuration)
    for (const auto& known : names_of(Precision{}))
      if (flag == "precision" && value == concat('"', known.name, '"')) return known.value;
  return std::nullopt;
}

std::optional<Precision> precision_of_snapshot(const fs::path& snapshot) {
  std::ostringstream text;
  text << std::ifstream(snapshot / "state.json").rdbuf();
  try {
    return precision_in(parse_run_state(text.str(), snapshot / "state.json").setup.configuration);
  } catch (const DataError&) {
    return std::nullopt;  // one that is cut short is not resumed from
  }
}

// Of the newest snapshot that can be read.
std::optional<Precision> precision_of_run(const fs::path& run) {
  std::vector<fs::path> snapshots;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / kSnapshots, none))
    if (step_of(entry.path().filename().string())) snapshots.push_back(entry.path());
  std::sort(snapshots.begin(), snapshots.end(), std::greater<>());
  for (const fs::path& snapshot : snapshots)
    if (const auto precision = precision_of_snapshot(snapshot)) return precision;
  return std::nullopt;
}

}  // namespace

std::optional<Precision> resumed_precision(const TrainOptions& options) {
  const ResumeSettings& resume = options.resume;
  if (resume.kind == Resume::kNever) return std::nullopt;
  std::optional<Precision> precision;
  if (resume.kind == Resume::kAuto || resume.again) precision = precision_of_run(options.output);
  if (precision || resume.kind != Resume::kFrom) return precision;
  precision = precision_of_run(resume.from);
  return precision ? precision : precision_of_snapshot(resume.from);
}

}  // namespace lockstep::cli
