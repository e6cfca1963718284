#include "lockstep/cli/run/run_flags.h"

#include <filesystem>
#include <iostream>
#include <stdlib.h>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/flag_table.h"
#include "lockstep/launch/cpu_share.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's
constexpr double kMostPort = 65535, kMostRestarts = 1'000'000;

constexpr const char* kRunExamples = R"(Examples:
  lockstep run --nproc-per-node 4 ./hello --epochs 3      four ranks on this host
  lockstep run -np auto python3 train.py                  a rank for each GPU, or else for each core
  lockstep run -np 4 --log-dir logs ./hello               show all; files logs/rank-0.log, ...
  lockstep run -np 4 --log-dir logs --tee 0:3 ./hello     show all; rank 0's two streams to files
  lockstep run -np 2 --max-restarts 3 ./hello             start all again when a rank fails
  lockstep run --nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr node0 ./hello
                                                          the second of two hosts; each starts as
                                                          many ranks

Notes:
  Each rank finds its place in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the other
  names that torchrun sets; a program written for torchrun runs as it is. Rank 0 serves the store.
  The first rank to fail ends the run within a second; its exit code is ours (128+n for a signal
  n), and its last output is shown. Processes that ranks have left behind are ended with the run.
  With --max-restarts N all ranks are ended and started again, up to N times in all: with
  TORCHELASTIC_RESTART_COUNT one higher and on another free port; logs are continued. A program that
  reports its steps (core/progress_page.h, as lockstep train does) is not restarted again, whatever
  N is, when it dies twice before its first step or at the same step. The last failure's code is
  ours; a signal to us while a restart is due ends the run with 128+n.
  Ranks on other nodes see the failure as lost connections; their launcher then ends them too.
  SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on; a second one kills at once.
  With as many cores as ranks each rank is pinned to its share of the cores; several runs on one
  host should be given their own cores (taskset) or use --no-pin.
  OMP_NUM_THREADS is 1 in every rank unless it is set, and glibc keeps freed memory
  (GLIBC_TUNABLES), which is best for training. Your own values are kept.)";

/// The flags as they were written, before anything is made of them.
struct RunTexts {
  std::string workers = "1";
  std::string nodes = "1";
  int node_rank = 0;
  std::string master_address;
  int master_port = 0;
  std::string endpoint;
  std::string rendezvous_backend = "static";
  std::string run_id = "none";
  bool standalone = false;
  std::string role = "default";
  int max_restarts = 0;
  double monitor_interval = 0.1;
  double grace_seconds = 30;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool pin = true;
  bool oversubscribe = false;
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string shown_ranks;
  std::string prefix = "[rank ${rank}] ";
  bool no_python = false;
  bool verbose = false;
  bool quiet = false;
};

using Group = FlagGroup<RunTexts>;

Group process_group_flags() {
  using T = RunTexts;
  return {"What to start",
      {flag("--nproc-per-node", "N", "ranks on this host: a number, cpu, gpu, or auto (also -np)",
           &T::workers)
              .variable("PET_NPROC_PER_NODE"),
          flag_off("--no-pin", "let each rank use all cores", &T::pin),
          flag_on("--oversubscribe", "start more than 8 ranks on each core", &T::oversubscribe),
          flag("--role", "NAME", "ROLE_NAME of the ranks", &T::role).variable("PET_ROLE"),
          flag_on(
              "--no-python", "changes nothing: PROGRAM is always run as it is", &T::no_python)}};
}

Group node_flags() {
  using T = RunTexts;
  return {"Several hosts (the same command on each, with its own --node-rank)",
      {flag("--nnodes", "N", "hosts that take part", &T::nodes).variable("PET_NNODES"),
          flag("--node-rank", "K", "which of them this is, from 0", &T::node_rank)
              .from(0)
              .to(kMostRanks)
              .variable("PET_NODE_RANK"),
          flag("--master-addr", "HOST", "host 0, as all others reach it", &T::master_address)
              .usually("127.0.0.1 for one host")
              .variable("PET_MASTER_ADDR"),
          flag("--master-port", "PORT", "where rank 0 listens", &T::master_port)
              .usually(concat(kUsualPort, "; a free one for one host"))
              .from(0)
              .to(kMostPort)
              .variable("PET_MASTER_PORT"),
          flag("--rdzv-endpoint", "HOST[:PORT]", "both of these in one", &T::endpoint)
              .variable("PET_RDZV_ENDPOINT"),
          flag("--rdzv-backend", "NAME", "static: every host knows its number",
              &T::rendezvous_backend)
              .variable("PET_RDZV_BACKEND"),
          flag("--rdzv-id", "ID", "TORCHELASTIC_RUN_ID of the ranks", &T::run_id)
              .variable("PET_RDZV_ID"),
          flag_on("--standalone", "one host and a free port, whatever the variables say",
              &T::standalone)
              .variable("PET_STANDALONE")}};
}

Group end_flags() {
  using T = RunTexts;
  return {"How it ends",
      {flag("--max-restarts", "N", "starts of all ranks again after a failure, on one host",
           &T::max_restarts)
              .from(0)
              .to(kMostRestarts)
              .variable("PET_MAX_RESTARTS"),
          flag("--grace-period", "SECONDS", "from a passed-on signal to SIGKILL", &T::grace_seconds)
              .from(0)
              .to(1e6),
          flag("--signals-to-handle", "NAMES", "signals to pass on", &T::signals)
              .variable("PET_SIGNALS_TO_HANDLE"),
          flag("--monitor-interval", "SECONDS", "changes nothing: an end is seen when it happens",
              &T::monitor_interval)
              .usually("")
              .from(0)
              .to(1e6)
              .variable("PET_MONITOR_INTERVAL")}};
}

Group output_flags() {
  using T = RunTexts;
  return {"What is shown and kept (MASK: 0 none, 1 stdout, 2 stderr, 3 both; or RANK:MASK,...)",
      {flag("--log-dir", "DIR", "an empty folder for a file of each rank's output", &T::log_dir)
              .variable("PET_LOG_DIR"),
          flag("--redirects", "MASK", "streams that go to a file instead of the terminal",
              &T::redirects)
              .letter("-r")
              .variable("PET_REDIRECTS"),
          flag("--tee", "MASK", "streams that go to a file and to the terminal", &T::tee)
              .letter("-t")
              .variable("PET_TEE"),
          flag("--local-ranks-filter", "RANKS", "show only these local ranks: 0,2", &T::shown_ranks)
              .usually("all")
              .variable("PET_LOCAL_RANKS_FILTER"),
          flag("--log-line-prefix", "TEXT", "of lines when several ranks are shown", &T::prefix)
              .may_be_empty()
              .variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
          flag_on("--verbose", "name each rank's process id", &T::verbose).letter("-v"),
          flag_on("--quiet", "print only why a run failed", &T::quiet).letter("-q")}};
}

const FlagTable<RunTexts>& run_table() {
  static const FlagTable<RunTexts> kTable(
      {.verb = "run",
          .usage = "lockstep run [flags] [--] PROGRAM [ARGUMENTS...]",
          .description =
              "Starts a program once per rank, waits for all, and ends all when one fails.\n"
              "Flags mean what they mean for torchrun; PET_* variables are their defaults.\n",
          .footer = kRunExamples},
      {process_group_flags(), node_flags(), end_flags(), output_flags()});
  return kTable;
}

int run_number(const std::string& flag, const std::string& text) {
  const auto number = parse_number<int>(text);
  check(number.has_value(), "run: ", flag, " must be a whole number: ", text);
  return *number;
}

std::vector<std::string> listed(const std::string& text) {
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

int node_count(const std::string& text) {
  check(text.find(':') == std::string::npos, "run: --nnodes: a range (", text,
      ") comes later; now give the number of hosts that take part");
  return run_number("--nnodes", text);
}

std::vector<int> signals_of(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& name : listed(text)) {
    const auto signal = launch::signal_number(name);
    check(signal && *signal != SIGKILL && *signal != SIGSTOP && *signal != SIGCHLD,
        "run: --signals-to-handle: cannot pass on ", name);
    signals.push_back(*signal);
  }
  return signals;
}

void check_what_comes_later(const RunTexts& texts) {
  check(texts.rendezvous_backend == "static" || texts.standalone, "run: --rdzv-backend ",
      texts.rendezvous_backend,
      " comes later; now every host needs its number: --node-rank, with --rdzv-backend static");
}

/// Fills in address and port: the flags, then the endpoint, then torchrun's port or a free one.
void place_master(const RunTexts& texts, launch::LaunchOptions& options) {
  if (texts.standalone) return;
  std::string address = texts.master_address;
  int port = texts.master_port;
  if (!texts.endpoint.empty()) {
    const auto colon = texts.endpoint.rfind(':');
    if (address.empty()) address = texts.endpoint.substr(0, colon);
    if (port == 0 && colon != std::string::npos) {
      port = run_number("--rdzv-endpoint: the port", texts.endpoint.substr(colon + 1));
    }
  }
  check(options.nodes == 1 || !address.empty(),
      "run: several hosts need --master-addr, the address of host 0, or --rdzv-endpoint");
  if (!address.empty()) options.master_address = address;
  options.master_port = port == 0 && options.nodes > 1 ? kUsualPort : port;
}

/// Makes a folder for logs that were asked for without saying where; as torchrun, it is named and
/// left.
std::string log_folder(const RunTexts& texts) {
  const bool asked = texts.redirects != "0" || texts.tee != "0";
  if (!texts.log_dir.empty() || !asked) return texts.log_dir;
  std::string folder = std::filesystem::temp_directory_path() / "lockstep-logs-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw_errno("run: make a folder for logs", folder);
  std::cerr << "lockstep: logs go to " << folder << std::endl;
  return folder;
}

launch::OutputOptions output_of(const RunTexts& texts) {
  launch::OutputOptions output;
  output.redirects = launch::StreamMask::parse("run: --redirects", texts.redirects);
  output.tee = launch::StreamMask::parse("run: --tee", texts.tee);
  output.prefix = texts.prefix;
  for (const std::string& rank : listed(texts.shown_ranks)) {
    output.shown_ranks.push_back(run_number("--local-ranks-filter", rank));
  }
  output.log_dir = texts.log_dir;
  return output;
}

/// Lets a launcher that `lockstep hosts` has started again count on from there.
void count_on(launch::LaunchOptions& options) {
  options.earlier_restarts = environment_count("TORCHELASTIC_RESTART_COUNT").value_or(0);
  options.death_ns = environment_number("LOCKSTEP_DEATH_NS").value_or(0);
}

launch::LaunchOptions options_of(const RunTexts& texts) {
  check_what_comes_later(texts);
  launch::LaunchOptions options;
  options.workers = launch::worker_count(texts.workers);
  if (!texts.oversubscribe) launch::check_crowd(options.workers, launch::usable_cpu_count());
  options.nodes = texts.standalone ? 1 : node_count(texts.nodes);
  options.node_rank = texts.standalone ? 0 : texts.node_rank;
  place_master(texts, options);
  options.run_id = texts.run_id;
  options.role = texts.role;
  options.pin = texts.pin;
  options.grace_period = std::chrono::milliseconds(static_cast<long>(texts.grace_seconds * 1000));
  options.max_restarts = texts.max_restarts;
  options.signals = signals_of(texts.signals);
  count_on(options);
  options.output = output_of(texts);
  options.verbose = texts.verbose;
  options.quiet = texts.quiet;
  return options;
}

}  // namespace

std::string run_help() { return run_table().help(); }

std::optional<launch::LaunchOptions> parse_run(const std::vector<std::string>& arguments) {
  const GivenFlags given = run_table().parse(arguments, AfterFlags::kProgram);
  if (given.asks_help) return std::nullopt;
  check(!given.program.empty(), "run: name the program: lockstep run --nproc-per-node 2 PROGRAM");
  RunTexts texts;
  run_table().read(texts, given);
  launch::LaunchOptions options = options_of(texts);
  options.program = given.program.front();
  options.arguments.assign(given.program.begin() + 1, given.program.end());
  options.output.log_dir = log_folder(texts);
  return options;
}

int run(const std::vector<std::string>& arguments) {
  const auto options = parse_run(arguments);
  if (options) return launch::launch(*options);
  std::cout << run_help();
  return 0;
}

}  // namespace lockstep::cli
