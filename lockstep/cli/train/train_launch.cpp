#include "lockstep/cli/train/train_launch.h"

#include <ctime>
#include <filesystem>
#include <iostream>
#include <signal.h>
#include <system_error>

#include "lockstep/cli/run/cluster_node.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/auto_parallel.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/cluster/adopt.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/liveness/spare.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualRestarts = 3;  // with several ranks; one alone needs no launcher

// How `lockstep train` differs from `lockstep run`.
launch::LaunchOptions usual_launch() {
  launch::LaunchOptions options;
  options.lockstep_codes = true;
  // A rank whose peer has died can save nothing any more, and takes SIGTERM for an order to do so.
  options.grace_after_failure = std::chrono::milliseconds(0);
  options.signals.push_back(SIGUSR1);
  hold_stops(options);
  options.output.first_inherits = true;
  options.output.shown_ranks = {0};
  return options;
}

int ranks_asked(const GivenFlags& given, const launch::Processors& host) {
  const std::string text = given.find("--nproc-per-node").value_or("1");
  const bool cores_compute = given.find("--device") == "cpu";
  return launch::worker_count(text == "auto" && cores_compute ? "cpu" : text, host);
}

void read_launch(
    launch::LaunchOptions& options, const GivenFlags& given, const launch::Processors& host) {
  const auto& table = train_flags();
  options.workers = ranks_asked(given, host);
  options.oversubscribe = given.has("--oversubscribe");
  options.pin = !given.has("--no-pin");
  options.output.log_dir = given.find("--log-dir").value_or("");
  check(options.output.log_dir.empty() || options.workers > 1,
      "train: --log-dir keeps the output of ranks above 0, and there is one rank");
  if (const auto seconds = given.find("--grace-period")) {
    const double number = table.spec("--grace-period").real_number(*seconds);
    options.grace_period = std::chrono::milliseconds(static_cast<long>(number * 1000));
  }
  if (const auto time = given.find("--hang-timeout"))
    options.hang_timeout = launch::hang_timeout_of(*time);
  options.max_restarts = options.workers > 1 ? kUsualRestarts : 0;
  if (const auto restarts = given.find("--max-restarts"))
    options.max_restarts = static_cast<int>(table.spec("--max-restarts").whole_number(*restarts));
  options.spares = given.has("--spares");
}

// Launchers on several nodes see only their own ranks, and start none again.
void place_on_nodes(TrainLaunch& plan) {
  place_node(plan.options);
  count_on(plan.options);
  if (plan.options.nodes > 1 && !plan.given.has("--max-restarts")) plan.options.max_restarts = 0;
}

// Those of a start that came to no run.
void remove_old_logs(const OpenDirectory& folder) {
  for (const std::string& name : folder.names())
    if (name.starts_with("rank-")) folder.remove(name);
}

// The user expects an effect.
void check_not_launched(const GivenFlags& given) {
  for (const char* flag : {"--grace-period", "--spares"})
    check(!given.has(flag), "train: ", flag,
        " is about ranks that a launcher starts, and one rank without --max-restarts has none");
}

}  // namespace

void hold_stops(launch::LaunchOptions& options) {
  options.held_signals.assign(kStopSignals.begin(), kStopSignals.end());
}

bool starts_train(const launch::LaunchOptions& options) {
  if (options.arguments.empty() || options.arguments.front() != "train") return false;
  const std::string path = launch::find_program(options.program, system_variable("PATH"));
  std::error_code unknown;
  return std::filesystem::equivalent(path, "/proc/self/exe", unknown);
}

TrainLaunch parse_train_launch(
    const std::vector<std::string>& arguments, const launch::Processors& host) {
  TrainLaunch plan{.options = usual_launch(), .rest = {}, .given = train_flags().parse(arguments)};
  if (plan.given.asks_help) return plan;
  read_launch(plan.options, plan.given, host);
  for (const GivenFlag& flag : plan.given.flags)
    if (!flag.spec->is_for_launcher)
      plan.rest.insert(plan.rest.end(), flag.words.begin(), flag.words.end());
  return plan;
}

void keep_logs_with_run(TrainLaunch& plan) {
  const int ranks = plan.options.workers;
  const TrainCommand command =
      read_train_flags(plan.given, {.world_size = ranks * plan.options.nodes,
                                       .local_world_size = ranks,
                                       .unix_time = std::time(nullptr),
                                       .restart_count = plan.options.earlier_restarts});
  if (command.dry_run || plan.options.nodes > 1) return;
  const std::string& output = command.options.output;
  check_run_directory(output, command.options.resume);
  if (!plan.given.has("--output")) plan.rest.insert(plan.rest.end(), {"--output", output});
  if (!plan.options.output.log_dir.empty()) return;
  plan.logs = std::make_unique<const RunLock>(output, kLauncherLock);
  const OpenDirectory logs = make_logs_folder(output);
  plan.options.output.append = holds_run(output);
  if (!plan.options.output.append) remove_old_logs(logs);
  plan.options.output.log_dir = logs.path();
}

int train(const std::vector<std::string>& arguments) {
  hold_stop_signals();
  TrainLaunch plan = parse_train_launch(resolve_auto_parallel(arguments));
  if (plan.given.asks_help) {
    std::cout << train_help();
    return 0;
  }
  const std::string program = sibling_program("train", "lockstep-train");
  if (environment(kSpareVariable)) become("train", program, plan.rest, Settings::kForTensors);
  const bool inside_a_launcher = environment("RANK").has_value();
  if (inside_a_launcher || !(plan.needs_a_launcher() || is_of_several_nodes())) {
    if (!inside_a_launcher) check_not_launched(plan.given);
    cluster::adopt_rank_place();
    become("train", program, plan.rest, Settings::kForTensors);
  }
  place_on_nodes(plan);
  if (!plan.options.oversubscribe) launch::check_crowd(plan.options.workers, usable_cpu_count());
  keep_logs_with_run(plan);
  plan.options.program = program;
  plan.options.arguments = plan.rest;
  return launch::launch(plan.options);
}

}  // namespace lockstep::cli
