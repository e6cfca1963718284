#include "lockstep/cli/train/train_launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <system_error>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/cluster/place.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/liveness/spare.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualNodePort = 29500;  // torchrun's

bool is_given(const GivenFlags& given, const char* flag, const char* variable) {
  return given.has(flag) || !system_variable(variable).empty();
}

void take(launch::LaunchOptions& options, const cluster::Place& place, const GivenFlags& given) {
  options.nodes = place.nodes;
  if (!is_given(given, "--node-rank", "PET_NODE_RANK")) options.node_rank = place.node;
  if (options.run_id == "none" && !place.job.empty()) options.run_id = place.job;
  options.master_address = place.master_address;
  const bool has_port = is_given(given, "--master-port", "PET_MASTER_PORT") ||
                        is_given(given, "--rdzv-endpoint", "PET_RDZV_ENDPOINT");
  if (!has_port) options.master_port = place.master_port;
}

using Words = std::vector<std::string>;

constexpr std::array kOfTheWay{
    "--stages", "--stages-per-place", "--schedule", "--chunks", "--balance"};
constexpr std::array kOfThePlaces{"--places", "--nproc-per-node"};

bool is_among(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Ranks that were threads are places of one process.
int processes_of(const std::string& run) {
  const auto facts = nlohmann::json::parse(text_in(run + "/env.json"), nullptr, false);
  if (!facts.is_object() || facts.value("backend", "") == "threads") return 1;
  return facts.value("world_size", 1);
}

/// The way of spreading that a run took at its last start.
struct Taken {
  TrainOptions options = {};
  int processes = 1;
  Layout layout = {};

  int places() const { return std::max(processes, layout.replicas * layout.workers); }
};

Taken way_of(const std::string& run) {
  const std::string file = run + "/config.toml";
  check(std::filesystem::exists(file), "train: --parallel auto goes on with the way that ", run,
      " has taken, and there is no config.toml to read it from; name the way");
  Taken taken{.options = recorded_options(text_in(file), file), .processes = processes_of(run)};
  taken.layout = plan_layout(taken.options, taken.processes);
  return taken;
}

Words words_for(const Taken& taken) {
  Words words{"--batch-size", concat(taken.options.batch_size)};
  const TrainOptions usual;
  for (const auto& flag : train_flags().flags()) {
    const std::string& name = flag.spec.name;
    const bool counts = name == "--parallel" || name == "--places" || is_among(kOfTheWay, name);
    if (counts && flag.write(taken.options) != flag.write(usual))
      words.insert(words.end(), {name, text_of(flag.write(taken.options))});
  }
  if (taken.processes > 1) words.insert(words.end(), {"--nproc-per-node", concat(taken.processes)});
  return words;
}

// With `auto`, the batch is that of all replicas together, and the places are the most to be used.
void check_fits(
    const GivenFlags& given, std::int64_t batch, const Taken& taken, const std::string& run) {
  const auto replicas = static_cast<double>(taken.layout.replicas);
  check(std::llround(static_cast<double>(batch) / replicas) == taken.options.batch_size,
      "train: --parallel auto: ", run, " takes ", taken.options.batch_size * taken.layout.replicas,
      " samples in a batch of all replicas together, and --batch-size is ", batch,
      "; give the same, or another --output");
  for (const char* const flag : kOfThePlaces) {
    const auto most = parse_number<int>(given.find(flag).value_or(""));
    check(!most || *most >= taken.places(), "train: --parallel auto: ", run, " is spread over ",
        taken.places(), " places, and ", flag, " allows ", most.value_or(0),
        "; to go on in another way, name it");
  }
}

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

// Removes the logs of a start that never became a run.
void remove_old_logs(const OpenDirectory& folder) {
  for (const std::string& name : folder.names())
    if (name.starts_with("rank-")) folder.remove(name);
}

// These flags would have no effect, which the user must know.
void check_not_launched(const GivenFlags& given) {
  for (const char* flag : {"--grace-period", "--spares"})
    check(!given.has(flag), "train: ", flag,
        " is about ranks that a launcher starts, and one rank without --max-restarts has none");
}

Words as_before(const GivenFlags& given, const TrainOptions& options) {
  const Taken taken = way_of(options.output);
  check_fits(given, options.batch_size, taken, options.output);
  Words words = given.words_without([](const FlagSpec& flag) {
    return flag.name == "--batch-size" || is_among(kOfThePlaces, flag.name);
  });
  const Words way = words_for(taken);
  std::cerr << "lockstep: " << options.output << " goes on as it began: " << joined(way, " ")
            << std::endl;
  words.insert(words.end(), way.begin(), way.end());
  return words;
}

// For a verb without flags about hosts, which reads their PET_* variables.
void place_node(launch::LaunchOptions& options) {
  options.nodes = environment_count("PET_NNODES", 1).value_or(1);
  options.node_rank = environment_count("PET_NODE_RANK").value_or(0);
  options.master_port = environment_count("PET_MASTER_PORT").value_or(0);
  ask_cluster(options, {});
  if (options.nodes == 1) return;
  options.master_address = environment("PET_MASTER_ADDR").value_or(options.master_address);
  check(!options.master_address.empty() && options.master_address != "127.0.0.1",
      "train: several hosts need PET_MASTER_ADDR, the address of host 0");
  if (options.master_port == 0) options.master_port = kUsualNodePort;
}

// The logs of a run that continues in its folder are continued. Bad flags are refused before any
// rank is started, and the folder is fixed, so that all ranks mean the same one. A dry run makes
// nothing; launchers on several nodes keep no logs unless asked.
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

}  // namespace

void check_way_is_open(const GivenFlags& given) {
  for (const char* const flag : kOfTheWay)
    check(!given.has(flag), "train: ", flag,
        " is among what --parallel auto chooses; leave it out, or name the way");
  check(given.find("--lr-scale").value_or("none") == "none",
      "train: --lr-scale lets the learning rate follow the number of replicas, and with --parallel "
      "auto measured times would decide it; leave it out, or name the way");
}

Words resolve_auto_parallel(const Words& arguments) {
  GivenFlags given = train_flags().parse(arguments);
  if (given.asks_help || given.find("--parallel") != "auto") return arguments;
  check(!environment("RANK"),
      "train: --parallel auto chooses how many ranks to start, and these are started already: "
      "start without a launcher, or set --parallel");
  std::erase_if(given.flags, [](const GivenFlag& flag) { return flag.spec->name == "--parallel"; });
  check_way_is_open(given);
  TrainOptions options;
  train_flags().read(options, given);
  const Words rest = given.words_without([](const FlagSpec&) { return false; });
  if (!options.output.empty() && holds_run(options.output)) {
    if (continues(options.output, options.resume)) return as_before(given, options);
    if (!options.resume.overwrite) return rest;  // which will be refused
  }
  Words plan{"plan", "--train", "--"};
  plan.insert(plan.end(), rest.begin(), rest.end());
  become("train", sibling_program("train", "lockstep-bench"), plan);
}

void ask_cluster(launch::LaunchOptions& options, const GivenFlags& given) {
  const bool counted = is_given(given, "--nnodes", "PET_NNODES");
  const bool numbered = is_given(given, "--node-rank", "PET_NODE_RANK");
  if (counted && (numbered || options.nodes == 1)) return;
  const auto here = cluster::surroundings_of_this_process();
  const auto place = cluster::node_place(here);
  const std::string note = counted ? "" : cluster::nodes_left_out(here);
  if (!note.empty()) std::cerr << "lockstep: " << note << std::endl;
  if (place && (!counted || options.nodes == place->nodes)) take(options, *place, given);
}

void count_on(launch::LaunchOptions& options) {
  const int by_slurm = cluster::job_restarts(cluster::surroundings_of_this_process());
  options.earlier_restarts = environment_count("TORCHELASTIC_RESTART_COUNT").value_or(by_slurm);
  options.death_ns = environment_number("LOCKSTEP_DEATH_NS").value_or(0);
}

void hold_stops(launch::LaunchOptions& options) {
  options.held_signals.assign(kStopSignals.begin(), kStopSignals.end());
}

bool starts_train(const launch::LaunchOptions& options) {
  if (options.arguments.empty() || options.arguments.front() != "train") return false;
  const std::string path = launch::find_program(options.program, system_variable("PATH"));
  std::error_code unknown;
  return std::filesystem::equivalent(path, "/proc/self/exe", unknown);
}

TrainLaunch parse_train_launch(const Words& arguments, const launch::Processors& host) {
  TrainLaunch plan{.options = usual_launch(), .rest = {}, .given = train_flags().parse(arguments)};
  if (plan.given.asks_help) return plan;
  launch::LaunchOptions& options = plan.options;
  options.workers = ranks_asked(plan.given, host);
  LaunchFlags flags;
  launch_flags().read(flags, plan.given);
  options.output.log_dir = flags.log_dir;
  options.max_restarts = flags.max_restarts.value_or(options.workers > 1 ? kUsualRestarts : 0);
  options.spares = flags.spares;
  if (!flags.hang_timeout.empty())
    options.hang_timeout = launch::hang_timeout_of(flags.hang_timeout);
  options.grace_period = flags.grace_period;
  options.pin = flags.pin;
  options.oversubscribe = flags.oversubscribe;
  check(options.output.log_dir.empty() || options.workers > 1,
      "train: --log-dir keeps the output of ranks above 0, and there is one rank");
  plan.rest = plan.given.words_without([](const FlagSpec& flag) { return flag.is_for_launcher; });
  return plan;
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
  // One rank on each of several nodes needs a launcher, too.
  const bool is_alone = !plan.needs_a_launcher() && environment("PET_NNODES").value_or("1") == "1";
  if (inside_a_launcher || is_alone) {
    if (!inside_a_launcher) check_not_launched(plan.given);
    cluster::adopt_rank_place();
    become("train", program, plan.rest, Settings::kForTensors);
  }
  place_node(plan.options);
  count_on(plan.options);
  // Launchers on several nodes see only their own ranks, and start none again.
  if (plan.options.nodes > 1 && !plan.given.has("--max-restarts")) plan.options.max_restarts = 0;
  if (!plan.options.oversubscribe) launch::check_crowd(plan.options.workers, usable_cpu_count());
  keep_logs_with_run(plan);
  plan.options.program = program;
  plan.options.arguments = plan.rest;
  return launch::launch(plan.options);
}

}  // namespace lockstep::cli
