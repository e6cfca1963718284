#include "lockstep/bench/planning/measure_profile.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/bench/experiment/trials.h"
#include "lockstep/bench/study/run_files.h"
#include "lockstep/bench/study/timed_steps.h"
#include "lockstep/bench/study/train_command.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kLimit = 60 * 60;  // seconds of a training
// The profile takes the first thirteen steps, and the layers are measured after them.
constexpr int kStepsALine = 10;
constexpr int kProfiledLines = 2;
constexpr int kLines = 5;

Words training(const MeasureRequest& request, int batch, const Words& spreading) {
  Words words = train_command("--model", request.model, "--data", request.data, "--precision",
      request.precision, "--batch-size", batch, "--max-steps", kLines * kStepsALine, "--epochs",
      kLines * kStepsALine, "--log-interval", kStepsALine, "--val-interval", "never",
      "--snapshot-interval", "never", "--progress", "none", "--profile", spreading);
  if (!request.plugin.empty()) add_words(words, words_of("--plugin", request.plugin));
  add_words(words, request.train_flags);
  return words;
}

StudyCell cell_on(const MeasureRequest& request, int places, int batch) {
  const Words spreading = places == 1 ? words_of("--parallel", "serial")
                                      : words_of("--parallel", "ddp", "--nproc-per-node", places);
  return {.id = concat("profile-p", places, "-b", batch),
      .settings = {{"places", concat(places)}, {"batch", concat(batch)}},
      .command = training(request, batch, spreading),
      .places = places,
      .cores = places * request.cores_a_place,
      .environment = threads(request.cores_a_place)};
}

std::string text_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ProfiledRun read_run(const fs::path& run, double batch, int places) {
  const fs::path file = run / "profile" / "profile.json";
  ProfiledRun read{.batch = batch,
      .profile = read_profile(text_in(file), file.string()),
      .step_seconds = {},
      .peak_bytes =
          static_cast<double>(read_run_summary(run).peak_memory_bytes.value_or(0)) / places};
  const auto lines = read_steps(run / "metrics.jsonl");
  for (std::size_t i = kProfiledLines; i < lines.size(); ++i)
    read.step_seconds.push_back(lines[i].seconds / static_cast<double>(lines[i].count));
  return read;
}

}  // namespace

std::vector<StudyCell> profile_cells(const MeasureRequest& request) {
  std::vector<StudyCell> cells;
  for (const int places : {1, 2}) {
    if (places * request.cores_a_place > request.cores) continue;
    for (const int batch : request.batches) cells.push_back(cell_on(request, places, batch));
  }
  return cells;
}

plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const std::function<void(const std::string&)>& say) {
  Trials trials(paths, "plan");
  std::vector<ProfiledRun> alone, pairs;
  for (const StudyCell& cell : profile_cells(request)) {
    say(concat("measuring ", request.model, " on ", cell.places,
        cell.places == 1 ? " place" : " places", ", batches of ", cell.settings.back().value));
    const fs::path run = trials.run_of(cell);
    const SampleEnd end = trials.run(cell, run, kLimit);
    check(end.status.succeeded(), "plan: ", cell.id,
        " cannot be trained: ", failure_reason(end, kLimit));
    auto& runs = cell.places == 1 ? alone : pairs;
    runs.push_back(read_run(run, std::stod(cell.settings.back().value), cell.places));
    fs::remove_all(run);
  }
  return profile_of_runs(alone, pairs, facts);
}

}  // namespace lockstep::bench
