#include "lockstep/cli/run/run_flags.h"

#include <filesystem>
#include <iostream>
#include <stdlib.h>
#include <utility>

#include "lockstep/cli/run/cluster_node.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/flag_table.h"
#include "lockstep/launch/cpu_share.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's
constexpr const char* kLoopback = "127.0.0.1";
constexpr double kMostPort = 65535, kMostRestarts = 1'000'000;

constexpr const char* kRunExamples = R"(Examples:
  lockstep run --nproc-per-node 4 ./hello --epochs 3      four ranks on this host
  lockstep run -np auto python3 train.py                  a rank for each GPU, or else for each core
  lockstep run -np 4 --log-dir logs ./hello               show all; files logs/rank-0.log, ...
  lockstep run -np 4 --log-dir logs --tee 0:3 ./hello     show all; rank 0's streams also in files
  lockstep run -np 2 --max-restarts 3 ./hello             restart all ranks when one fails
  lockstep run --nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr node0 ./hello
                                                          the second of two hosts; each starts the
                                                          same number of ranks

Notes:
  Each rank finds its number and its peers in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
  MASTER_PORT and the other names that torchrun sets; a program written for torchrun runs unchanged.
  Rank 0 serves the store.
  The first rank to fail ends the run within a second. Its exit code is returned (128+n for signal
  n) and its last output is shown. Processes that ranks have left behind are ended with the run.
  With --max-restarts N all ranks are ended and restarted, up to N times in all: with
  TORCHELASTIC_RESTART_COUNT one higher and on another free port; logs are continued. A program that
  reports its steps (core/progress_page.h, as lockstep train does) is not restarted again, whatever
  N is, when it dies twice before its first step or at the same step. The last failure's exit code
  is returned; a signal that is received before a restart ends the run with 128+n.
  Under Slurm, with a launcher on each node, hosts and addresses come from Slurm's variables where
  neither flags nor PET_* name them: srun --ntasks-per-node=1 lockstep run -np 4 ./hello
  Ranks on other nodes see the failure as lost connections; their launcher then ends them too.
  SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded; a second one kills at once.
  With as many cores as ranks each rank is pinned to its share of the cores; several runs on one
  host should be given their own cores (taskset) or use --no-pin.
  OMP_NUM_THREADS is 1 in every rank unless it is set, and glibc keeps freed memory
  (GLIBC_TUNABLES), which is best for training. Your own values are kept.)";

/// The options, and the flags that decide some of them together.
struct RunRequest {
  launch::LaunchOptions options;
  std::string nodes = "1";
  std::string master_address;
  std::string endpoint;
  std::string rendezvous_backend = "static";
  bool standalone = false;
  bool no_python = false;
  double monitor_interval = 0.1;
};

using Options = launch::LaunchOptions;
using Output = launch::OutputOptions;
using Group = FlagGroup<RunRequest>;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

std::vector<std::string> listed(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

int run_number(const std::string& flag, const std::string& text) {
  const auto number = parse_number<int>(text);
  check(number.has_value(), "run: ", flag, " must be a whole number: ", text);
  return *number;
}

void read_signals(RunRequest& request, const FlagSpec&, const std::string& text) {
  request.options.signals.clear();
  for (const std::string& name : listed(text)) {
    const auto signal = launch::signal_number(name);
    check(signal && *signal != SIGKILL && *signal != SIGSTOP && *signal != SIGCHLD,
        "run: --signals-to-handle: cannot forward ", name);
    request.options.signals.push_back(*signal);
  }
}

Flag<RunRequest> mask_flag(
    const char* name, const char* letter, const char* help, launch::StreamMask Output::*mask) {
  const auto read = [=](RunRequest& request, const FlagSpec& flag, const std::string& text) {
    request.options.output.*mask = launch::StreamMask::parse("run: " + flag.name, text);
  };
  return flag_by<RunRequest>(name, "MASK", help, read).letter(letter).usually(0);
}

Group process_group_flags() {
  return {"What to start",
      {flag_by<RunRequest>("--nproc-per-node", "N",
           "ranks on this host: a number, cpu, gpu, or auto (also -np)",
           [](RunRequest& request, const FlagSpec&, const std::string& text) {
             request.options.workers = launch::worker_count(text);
           })
              .usually(1)
              .variable("PET_NPROC_PER_NODE"),
          flag_off("--no-pin", "let each rank use all cores", &RunRequest::options, &Options::pin),
          flag_on("--oversubscribe", "start more than 8 ranks on each core", &RunRequest::options,
              &Options::oversubscribe),
          flag("--role", "NAME", "ROLE_NAME of the ranks", &RunRequest::options, &Options::role)
              .variable("PET_ROLE"),
          flag_on("--no-python", "ignored, for torchrun: PROGRAM is always executed directly",
              &RunRequest::no_python)}};
}

Group node_flags() {
  return {"Several hosts (the same command on each, with its own --node-rank)",
      {flag("--nnodes", "N", "hosts that take part", &RunRequest::nodes).variable("PET_NNODES"),
          flag("--node-rank", "K", "number of this host, from 0", &RunRequest::options,
              &Options::node_rank)
              .from(0)
              .to(kMostRanks)
              .variable("PET_NODE_RANK"),
          flag("--master-addr", "HOST", "address of host 0, as others reach it",
              &RunRequest::master_address)
              .usually("127.0.0.1 for one host")
              .variable("PET_MASTER_ADDR"),
          flag("--master-port", "PORT", "port on which rank 0 listens", &RunRequest::options,
              &Options::master_port)
              .usually(concat(kUsualPort, "; a free one for one host"))
              .from(0)
              .to(kMostPort)
              .variable("PET_MASTER_PORT"),
          flag("--rdzv-endpoint", "HOST[:PORT]", "both of these in one", &RunRequest::endpoint)
              .variable("PET_RDZV_ENDPOINT"),
          flag("--rdzv-backend", "NAME", "static: every host knows its number",
              &RunRequest::rendezvous_backend)
              .variable("PET_RDZV_BACKEND"),
          flag("--rdzv-id", "ID", "TORCHELASTIC_RUN_ID of the ranks", &RunRequest::options,
              &Options::run_id)
              .variable("PET_RDZV_ID"),
          flag_on("--standalone", "one host and a free port, whatever the variables say",
              &RunRequest::standalone)
              .variable("PET_STANDALONE")}};
}

Group end_flags() {
  return {"How it ends",
      {flag("--max-restarts", "N", "restarts of all ranks after a failure; one host only",
           &RunRequest::options, &Options::max_restarts)
              .from(0)
              .to(kMostRestarts)
              .variable("PET_MAX_RESTARTS"),
          flag_by<RunRequest>("--grace-period", "SECONDS",
              "seconds between a forwarded signal and SIGKILL",
              [](RunRequest& request, const FlagSpec& flag, const std::string& text) {
                request.options.grace_period = milliseconds_of(flag.real_number(text));
              })
              .real()
              .usually(30)
              .from(0)
              .to(1e6),
          flag_by<RunRequest>(
              "--signals-to-handle", "NAMES", "signals to forward to the ranks", read_signals)
              .usually("SIGTERM,SIGINT,SIGHUP,SIGQUIT")
              .variable("PET_SIGNALS_TO_HANDLE"),
          flag("--monitor-interval", "SECONDS", "ignored, for torchrun: exits are noticed at once",
              &RunRequest::monitor_interval)
              .usually("")
              .from(0)
              .to(1e6)
              .variable("PET_MONITOR_INTERVAL")}};
}

Group output_flags() {
  return {"What is shown and kept (MASK: 0 none, 1 stdout, 2 stderr, 3 both; or RANK:MASK,...)",
      {flag("--log-dir", "DIR", "folder for the ranks' output files; must be empty",
           &RunRequest::options, &Options::output, &Output::log_dir)
              .variable("PET_LOG_DIR"),
          mask_flag("--redirects", "-r", "streams that go to a file instead of the terminal",
              &Output::redirects)
              .variable("PET_REDIRECTS"),
          mask_flag("--tee", "-t", "streams that go to a file and to the terminal", &Output::tee)
              .variable("PET_TEE"),
          flag_by<RunRequest>("--local-ranks-filter", "RANKS", "show only these local ranks: 0,2",
              [](RunRequest& request, const FlagSpec& flag, const std::string& text) {
                for (const std::string& rank : listed(text))
                  request.options.output.shown_ranks.push_back(run_number(flag.name, rank));
              })
              .usually("all")
              .variable("PET_LOCAL_RANKS_FILTER"),
          flag("--log-line-prefix", "TEXT", "prefix of lines when several ranks are shown",
              &RunRequest::options, &Options::output, &Output::prefix)
              .may_be_empty()
              .variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
          flag_on(
              "--verbose", "name each rank's process id", &RunRequest::options, &Options::verbose)
              .letter("-v"),
          flag_on("--quiet", "print only why a run failed", &RunRequest::options, &Options::quiet)
              .letter("-q")}};
}

const FlagTable<RunRequest>& run_table() {
  static const FlagTable<RunRequest> kTable(
      {.verb = "run",
          .usage = "lockstep run [flags] [--] PROGRAM [ARGUMENTS...]",
          .description =
              "Starts a program once per rank, waits for all, and ends all when one fails.\n"
              "Flags mean what they mean for torchrun; PET_* variables are their defaults.\n",
          .footer = kRunExamples},
      {process_group_flags(), node_flags(), end_flags(), output_flags()});
  return kTable;
}

int node_count(const std::string& text) {
  check(text.find(':') == std::string::npos, "run: --nnodes: a range (", text,
      ") is not supported yet; give the number of hosts");
  return run_number("--nnodes", text);
}

void check_what_comes_later(const RunRequest& request) {
  check(request.rendezvous_backend == "static" || request.standalone, "run: --rdzv-backend ",
      request.rendezvous_backend,
      " is not supported yet; give every host its --node-rank, with --rdzv-backend static");
}

/// Fills in address and port: the flags, then the endpoint, then torchrun's port or a free one.
void place_master(RunRequest& request) {
  Options& options = request.options;
  if (request.standalone) options.master_port = 0;
  if (request.standalone) return;
  std::string address = request.master_address;
  if (address.empty() && request.endpoint.empty() && options.nodes > 1)
    address = options.master_address == kLoopback ? "" : options.master_address;
  if (!request.endpoint.empty()) {
    const auto colon = request.endpoint.rfind(':');
    if (address.empty()) address = request.endpoint.substr(0, colon);
    if (options.master_port == 0 && colon != std::string::npos)
      options.master_port =
          run_number("--rdzv-endpoint: the port", request.endpoint.substr(colon + 1));
  }
  check(options.nodes == 1 || !address.empty(),
      "run: several hosts need --master-addr, the address of host 0, or --rdzv-endpoint");
  if (!address.empty()) options.master_address = address;
  if (options.master_port == 0 && options.nodes > 1) options.master_port = kUsualPort;
}

/// Makes a folder for logs that were asked for without saying where; as torchrun, it is named and
/// left.
void place_logs(Output& output) {
  if (!output.log_dir.empty() || (output.redirects.empty() && output.tee.empty())) return;
  output.log_dir = std::filesystem::temp_directory_path() / "lockstep-logs-XXXXXX";
  if (::mkdtemp(output.log_dir.data()) == nullptr)
    throw_errno("run: make a folder for logs", output.log_dir);
  std::cerr << "lockstep: logs go to " << output.log_dir << std::endl;
}

void resolve(RunRequest& request, const GivenFlags& given) {
  Options& options = request.options;
  check_what_comes_later(request);
  if (!options.oversubscribe) launch::check_crowd(options.workers, launch::usable_cpu_count());
  options.nodes = request.standalone ? 1 : node_count(request.nodes);
  if (request.standalone) options.node_rank = 0;
  if (!request.standalone) ask_cluster(options, given);
  place_master(request);
  count_on(options);
  place_logs(options.output);
  if (starts_train(options)) hold_stops(options);
}

}  // namespace

std::string run_help() { return run_table().help(); }

std::optional<launch::LaunchOptions> parse_run(const std::vector<std::string>& arguments) {
  const GivenFlags given = run_table().parse(arguments, AfterFlags::kProgram);
  if (given.asks_help) return std::nullopt;
  check(!given.program.empty(),
      "run: no program given; for example: lockstep run --nproc-per-node 2 PROGRAM");
  RunRequest request;
  run_table().read(request, given);
  request.options.program = given.program.front();
  request.options.arguments.assign(given.program.begin() + 1, given.program.end());
  resolve(request, given);
  return std::move(request.options);
}

int run(const std::vector<std::string>& arguments) {
  const auto options = parse_run(arguments);
  if (options) return launch::launch(*options);
  std::cout << run_help();
  return 0;
}

}  // namespace lockstep::cli
