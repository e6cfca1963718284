#include "lockstep/cli/run/run_flags.h"

#include <iostream>
#include <stdlib.h>
#include <utility>

#include "lockstep/cli/run/cluster_node.h"
#include "lockstep/cli/run/run_request.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/snapshot/state_fields.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

constexpr double kMostRestarts = 1'000'000;

constexpr const char* kRunExamples = R"(Examples:
  lockstep run --nproc-per-node 4 ./hello --epochs 3      four ranks on this host
  lockstep run -np auto python3 train.py                  a rank for each GPU, or else for each core
  lockstep run -np 4 --log-dir logs ./hello               show all; files logs/rank-0.log, ...
  lockstep run -np 4 --log-dir logs --tee 0:3 ./hello     show all; rank 0's streams also in files
  lockstep run -np 2 --max-restarts 3 ./hello             restart all ranks when one fails
  lockstep run --nproc-per-node 8 --nnodes 2 --node-rank 1 --master-addr node0 ./hello
                                                          the second of two hosts; each starts the
                                                          same number of ranks
  lockstep run --nnodes 2:4 --rdzv-endpoint node0:29400 --max-restarts 3 ./hello
                                                          two to four hosts, all with this command
                                                          and one LOCKSTEP_SECRET

Notes:
  Each rank finds its number and its peers in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
  MASTER_PORT and the other names that torchrun sets; a program written for torchrun runs unchanged.
  Rank 0 serves the store.
  The first rank to fail ends the run within a second. Its exit code is returned (128+n for signal
  n) and its last output is shown. Processes that ranks have left behind are ended with the run.
  With --max-restarts N all ranks are ended and restarted, up to N times in all: with
  TORCHELASTIC_RESTART_COUNT one higher and on another free port; logs are continued. A program that
  reports its steps (liveness/progress_page.h, as lockstep train does) is not restarted again, whatever
  N is, when it dies twice before its first step or at the same step. The last failure's exit code
  is returned; a signal that is received before a restart ends the run with 128+n.
  A rank of such a program that makes no progress for --hang-timeout, not even in a collective, has
  failed with code 5: the launcher says which, where it is, and for what the others wait.
  Under Slurm, with a launcher on each node, hosts and addresses come from Slurm's variables where
  neither flags nor PET_* name them: srun --ntasks-per-node=1 lockstep run -np 4 ./hello
  With --rdzv-backend static, ranks on other nodes see the failure as lost connections, their
  launcher then ends them too, and nothing is restarted. With lockstep all launchers hear of it, and
  restart together; a lost host is done without as long as MIN are left, one that joins is taken in.
  SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded; a second one kills at once.
  With as many cores as ranks each rank is pinned to its share of the cores; several runs on one
  host should be given their own cores (taskset) or use --no-pin.
  OMP_NUM_THREADS is 1 in every rank unless it is set, glibc keeps freed memory (GLIBC_TUNABLES),
  and OpenMP's waits are short (GOMP_SPINCOUNT), which is best for training. Your own values are
  kept.)";

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

Group end_flags() {
  return {"How it ends",
      {flag("--max-restarts", "N", "restarts of all ranks after a failure", &RunRequest::options,
           &Options::max_restarts)
              .from(0)
              .to(kMostRestarts)
              .variable("PET_MAX_RESTARTS"),
          flag_on("--spares", "a process for each rank waits to take its place after a failure",
              &RunRequest::options, &Options::spares),
          launch::hang_timeout_flag<RunRequest>(
              [](RunRequest& request, const FlagSpec&, const std::string& text) {
                request.options.hang_timeout = launch::hang_timeout_of(text);
              }),
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

/// Makes a folder for logs that were asked for without saying where; as torchrun, it is named and
/// left.
void place_logs(Output& output) {
  if (!output.log_dir.empty() || (output.redirects.empty() && output.tee.empty())) return;
  output.log_dir = temporary_folder() + "/lockstep-logs-XXXXXX";
  if (::mkdtemp(output.log_dir.data()) == nullptr)
    throw_errno("run: make a folder for logs", output.log_dir);
  std::cerr << "lockstep: logs go to " << output.log_dir << std::endl;
}

/// Ranks of `lockstep train` that are started again together are treated as by that verb.
void suit_train(launch::LaunchOptions& options) {
  const std::vector<std::string> flags(options.arguments.begin() + 1, options.arguments.end());
  if (const auto output = train_flags().parse(flags).find("--output"))
    options.rendezvous->run_here = [folder = *output] { return run_id_of_folder(folder); };
  options.lockstep_codes = true;
  options.grace_after_failure = std::chrono::milliseconds(0);
  add_own_facts(*options.rendezvous);
}

void resolve(RunRequest& request, const GivenFlags& given) {
  Options& options = request.options;
  if (!options.oversubscribe) launch::check_crowd(options.workers, usable_cpu_count());
  place_nodes(request, given);
  count_on(options);
  place_logs(options.output);
  if (!starts_train(options)) return;
  hold_stops(options);
  if (options.rendezvous) suit_train(options);
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
  if (options && options->rendezvous) return launch::launch_together(*options);
  if (options) return launch::launch(*options);
  std::cout << run_help();
  return 0;
}

}  // namespace lockstep::cli
