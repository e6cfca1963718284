#include "lockstep/cli/train/train_logs.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/cli/train/train_flags.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// What a start left that came to no run.
void remove_old_logs(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("rank-")) fs::remove(entry.path());
  }
}

bool names_output(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--output" || word.starts_with("--output=");
  });
}

}  // namespace

void keep_logs_with_run(TrainLaunch& plan) {
  const int ranks = plan.options.workers;
  const auto command = parse_train_flags(
      plan.rest, {.world_size = ranks, .local_world_size = ranks, .unix_time = std::time(nullptr)});
  if (!command || command->dry_run) return;
  const std::string& output = command->options.output;
  check_run_directory(output, command->options.resume);
  if (!names_output(plan.rest)) plan.rest.insert(plan.rest.end(), {"--output", output});
  if (!plan.options.output.log_dir.empty()) return;
  const fs::path logs = fs::path(output) / "logs";
  fs::create_directories(logs);
  plan.options.output.append = holds_run(output);
  if (!plan.options.output.append) remove_old_logs(logs);
  plan.options.output.log_dir = logs;
}

}  // namespace lockstep::cli
