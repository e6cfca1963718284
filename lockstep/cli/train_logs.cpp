#include "lockstep/cli/train_logs.h"

#include <ctime>
#include <filesystem>

#include "lockstep/cli/train_flags.h"
#include "lockstep/train/run_directory.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// What a start left that came to no run; check_run_directory() has seen that there is none.
void remove_old_logs(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("rank-")) fs::remove(entry.path());
  }
}

}  // namespace

void keep_logs_with_run(TrainLaunch& plan) {
  const int ranks = plan.options.workers;
  const auto command = parse_train_flags(
      plan.rest, {.world_size = ranks, .local_world_size = ranks, .unix_time = std::time(nullptr)});
  if (!command || command->dry_run) return;
  const std::string& output = command->options.output;
  check_run_directory(output);
  plan.rest.insert(plan.rest.end(), {"--output", output});
  if (!plan.options.output.log_dir.empty()) return;
  const fs::path logs = fs::path(output) / "logs";
  fs::create_directories(logs);
  remove_old_logs(logs);
  plan.options.output.log_dir = logs;
}

}  // namespace lockstep::cli
