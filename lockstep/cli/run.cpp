#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <utility>

#include "lockstep/cli/env.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

/// The options of `lockstep run`, and the flags that decide some of them together.
struct RunRequest {
  launch::LaunchOptions options;
  launch::RendezvousOptions meeting;
  std::string nodes = "1";
  std::string master_address;
  std::string endpoint;
  std::string rendezvous_backend;
  bool standalone = false;
  bool is_module = false;
  bool no_python = false;
  double monitor_interval = 0.1;
};

using Options = launch::LaunchOptions;
using Meeting = launch::RendezvousOptions;
using Output = launch::OutputOptions;
using Group = FlagGroup<RunRequest>;
using Text = const std::string&;

constexpr int kUsualPort = 29500, kUsualMeetingPort = 29400;  // torchrun's
constexpr const char* kLoopback = "127.0.0.1";
constexpr double kMostPort = 65535, kMostSeconds = 1e6, kMostRestarts = 1'000'000;

int whole_number(Text flag, Text text) {
  const auto number = parse_number<int>(text);
  check(number.has_value(), "run: ", flag, " must be a whole number: ", text);
  return *number;
}

std::chrono::milliseconds seconds_in(Text name, Text text) {
  const auto seconds = parse_number<double>(text);
  check(seconds && *seconds >= 0 && *seconds <= kMostSeconds, "run: --rdzv-conf: ", name,
      " must be a number of seconds: ", text);
  return std::chrono::milliseconds(static_cast<long>(*seconds * 1000));
}

bool truth_in(Text name, Text text) {
  const bool is_true = text == "true" || text == "True" || text == "1";
  const bool is_false = text == "false" || text == "False" || text == "0";
  check(is_true || is_false, "run: --rdzv-conf: ", name, " must be true or false: ", text);
  return is_true;
}

/// A setting of --rdzv-conf, and what it does with its name and text.
using Setting = std::function<void(Meeting&, Text, Text)>;

template <auto Member>
Setting seconds_setting() {
  return [](Meeting& meeting, Text name, Text text) { meeting.*Member = seconds_in(name, text); };
}

const std::map<std::string, Setting>& settings() {
  const Setting unused = [](Meeting&, Text, Text) {};
  static const std::map<std::string, Setting> kSettings{
      {"timeout", seconds_setting<&Meeting::join_timeout>()},
      {"join_timeout", seconds_setting<&Meeting::join_timeout>()},
      {"last_call_timeout", seconds_setting<&Meeting::last_call>()},
      {"keep_alive_interval",
          [](Meeting& meeting, Text name, Text text) {
            const auto beats = meeting.dead_after / meeting.beat;  // that may be missed
            meeting.beat = seconds_in(name, text);
            check(meeting.beat.count() > 0, "run: --rdzv-conf: ", name, " must be above 0: ", text);
            meeting.dead_after = beats * meeting.beat;
          }},
      {"keep_alive_max_attempt",
          [](Meeting& meeting, Text name, Text text) {
            meeting.dead_after = whole_number("--rdzv-conf: " + name, text) * meeting.beat;
          }},
      {"is_host",
          [](Meeting& meeting, Text name, Text text) { meeting.serves = truth_in(name, text); }},
      {"secret_file", [](Meeting& meeting, Text, Text text) { meeting.secret_file = text; }},
      {"close_timeout", unused}, {"read_timeout", unused}, {"rank", unused}};
  return kSettings;
}

void read_settings(RunRequest& request, const FlagSpec&, Text text) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : settings()) names.push_back(name);
  for (const std::string& each : split(text, ',')) {
    const auto equals = each.find('=');
    const std::string name = each.substr(0, equals);
    const auto found = settings().find(name);
    check(equals != std::string::npos && found != settings().end(), "run: --rdzv-conf: must be ",
        "NAME=VALUE,... of ", joined(names), ": ", each, did_you_mean(name, names));
    found->second(request.meeting, name, each.substr(equals + 1));
  }
}

bool is_range(const RunRequest& request) { return request.nodes.find(':') != std::string::npos; }

/// Reads N or MIN:MAX.
void read_nodes(RunRequest& request) {
  const auto colon = request.nodes.find(':');
  Meeting& meeting = request.meeting;
  meeting.least_nodes = whole_number("--nnodes", request.nodes.substr(0, colon));
  meeting.most_nodes = meeting.least_nodes;
  if (is_range(request))
    meeting.most_nodes = whole_number("--nnodes", request.nodes.substr(colon + 1));
}

/// Says whether nodes find each other, instead of each having its number.
bool meets(const RunRequest& request) {
  const std::string& backend = request.rendezvous_backend;
  check(backend.empty() || backend == "static" || backend == "lockstep" || backend == "c10d",
      "run: --rdzv-backend: must be static, lockstep or c10d, which is lockstep here: ", backend);
  check(backend != "static" || !is_range(request), "run: --nnodes: a range of nodes (",
      request.nodes, ") needs --rdzv-backend lockstep: with static each has a fixed number");
  return (!backend.empty() && backend != "static") || is_range(request);
}

/// Fills in address and port for nodes with numbers: the flags, then the endpoint, then torchrun's
/// port or a free one.
void place_master(RunRequest& request) {
  Options& options = request.options;
  std::string address = request.master_address;
  // The cluster's, which it leaves empty where it does not know.
  if (address.empty() && request.endpoint.empty() && options.nodes > 1)
    address = options.master_address == kLoopback ? "" : options.master_address;
  if (!request.endpoint.empty()) {
    const auto colon = request.endpoint.rfind(':');
    if (address.empty()) address = request.endpoint.substr(0, colon);
    if (options.master_port == 0 && colon != std::string::npos)
      options.master_port =
          whole_number("--rdzv-endpoint: the port", request.endpoint.substr(colon + 1));
  }
  check(options.nodes == 1 || !address.empty(),
      "run: several hosts need --master-addr, the address of host 0, or --rdzv-endpoint");
  if (!address.empty()) options.master_address = address;
  if (options.master_port == 0 && options.nodes > 1) options.master_port = kUsualPort;
}

void place_meeting(RunRequest& request) {
  Meeting& meeting = request.meeting;
  Options& options = request.options;
  const std::string place = request.endpoint.empty() ? request.master_address : request.endpoint;
  check(!place.empty(), "run: --rdzv-endpoint: nodes that find each other need one: HOST:PORT, of ",
      "the node that serves");
  const int usual =
      request.endpoint.empty() && options.master_port > 0 ? options.master_port : kUsualMeetingPort;
  const auto endpoint = net::parse_endpoint("run: --rdzv-endpoint", place, usual);
  meeting.host = endpoint.host;
  meeting.port = endpoint.port;
  launch::check_rendezvous(meeting);
  options.nodes = 1;
  options.node_rank = 0;  // it is given by the rendezvous
  options.master_port = 0;
  options.rendezvous = meeting;
}

Group node_flags() {
  return {
      "Several hosts (the same command on each; with --rdzv-backend static its own --node-rank)",
      {flag("--nnodes", "N", "hosts that take part, or MIN:MAX", &RunRequest::nodes)
              .variable("PET_NNODES"),
          flag("--rdzv-backend", "NAME",
              "lockstep (or c10d): they find each other; static: by numbers",
              &RunRequest::rendezvous_backend)
              .usually("")
              .variable("PET_RDZV_BACKEND"),
          flag("--rdzv-endpoint", "HOST[:PORT]", "where they meet: the address of one of them",
              &RunRequest::endpoint)
              .usually("the port is 29400")
              .variable("PET_RDZV_ENDPOINT"),
          flag("--rdzv-id", "ID", "name of the run, TORCHELASTIC_RUN_ID of the ranks",
              &RunRequest::options, &Options::run_id)
              .variable("PET_RDZV_ID"),
          flag_by<RunRequest>("--rdzv-conf", "NAME=VALUE,...",
              "join_timeout, last_call_timeout, is_host, secret_file, ...", read_settings)
              .variable("PET_RDZV_CONF"),
          flag("--rdzv-secret-file", "FILE", "secret that all hosts share, else LOCKSTEP_SECRET",
              &RunRequest::meeting, &Meeting::secret_file)
              .variable("LOCKSTEP_SECRET_FILE"),
          flag_on("--insecure", "meet without a secret on a network that only you reach",
              &RunRequest::meeting, &Meeting::insecure),
          flag("--local-addr", "HOST", "address of this host, as others reach it",
              &RunRequest::meeting, &Meeting::local_address)
              .usually("that of the way there")
              .variable("PET_LOCAL_ADDR"),
          flag("--node-rank", "K", "static: number of this host, from 0", &RunRequest::options,
              &Options::node_rank)
              .within(0, kMostRanks)
              .variable("PET_NODE_RANK"),
          flag("--master-addr", "HOST", "static: address of host 0", &RunRequest::master_address)
              .usually("127.0.0.1 for one host")
              .variable("PET_MASTER_ADDR"),
          flag("--master-port", "PORT", "static: port of rank 0", &RunRequest::options,
              &Options::master_port)
              .usually(concat(kUsualPort, "; a free one for one host"))
              .within(0, kMostPort)
              .variable("PET_MASTER_PORT"),
          flag_on("--standalone", "one host and a free port, whatever the variables say",
              &RunRequest::standalone)
              .variable("PET_STANDALONE")}};
}

void place_nodes(RunRequest& request, const GivenFlags& given) {
  Options& options = request.options;
  check(request.meeting.secret_file.empty() || !given.has("--rdzv-secret-file") ||
            (!request.standalone && meets(request)),
      "run: --rdzv-secret-file is for nodes that find each other; with static nothing is secret: "
      "add --rdzv-backend lockstep, or leave it out");
  if (request.standalone) {
    read_nodes(request);
    check(!given.has("--nnodes") || request.meeting.least_nodes == 1,
        "run: --standalone is one host, and --nnodes says ", request.nodes, "; leave out one");
    check(!given.has("--node-rank") || options.node_rank == 0,
        "run: --standalone has host 0 alone, and --node-rank says ", options.node_rank);
    options.nodes = 1;
    options.node_rank = 0;
    options.master_port = 0;
    return;
  }
  read_nodes(request);
  if (meets(request) && request.meeting.most_nodes > 1) return place_meeting(request);
  options.nodes = request.meeting.most_nodes;
  ask_cluster(options, given);
  place_master(request);
}

constexpr const char* kRunExamples = R"(Examples:
  lockstep run --nproc-per-node 4 ./hello --epochs 3      four ranks on this host
  lockstep run -np auto train.py                          a rank for each GPU, or else for each core
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
  Rank 0 serves the store. A script NAME.py, or a module, is run by PYTHON_EXEC, else by the Python
  beside a wheel's lockstep, else by python3.
  The first rank to fail ends the run within a second. Its exit code is returned (128+n for signal
  n) and its last output is shown. Processes that ranks have left behind are ended with the run.
  With --max-restarts N all ranks are ended and restarted, up to N times in all: with
  TORCHELASTIC_RESTART_COUNT one higher and on another free port; logs are continued. A program that
  reports its steps (progress_page.h, or lockstep.report_step() of Python) is not restarted again,
  whatever N is, when it dies before its first step or at the furthest step again; the exit code is
  then that of the attempt that first came so far, else the last failure's. A signal that is
  received before a restart ends the run with 128+n.
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

std::vector<std::string> listed(Text text) {
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

void read_signals(RunRequest& request, const FlagSpec&, Text text) {
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
  const auto read = [=](RunRequest& request, const FlagSpec& flag, Text text) {
    request.options.output.*mask = launch::StreamMask::parse("run: " + flag.name, text);
  };
  return flag_by<RunRequest>(name, "MASK", help, read).letter(letter).usually(0);
}

Group process_group_flags() {
  return {"What to start",
      {flag_by<RunRequest>("--nproc-per-node", "N",
           "ranks on this host: a number, cpu, gpu, or auto (also -np)",
           [](RunRequest& request, const FlagSpec&, Text text) {
             request.options.workers = launch::worker_count(text);
           })
              .usually(1)
              .variable("PET_NPROC_PER_NODE"),
          flag_off("--no-pin", "let each rank use all cores", &RunRequest::options, &Options::pin),
          flag_on("--oversubscribe", "start more than 8 ranks on each core", &RunRequest::options,
              &Options::oversubscribe),
          flag("--role", "NAME", "ROLE_NAME of the ranks", &RunRequest::options, &Options::role)
              .variable("PET_ROLE"),
          flag_on("--module", "PROGRAM is a module of Python, as for python3 -m",
              &RunRequest::is_module)
              .letter("-m")
              .variable("PET_MODULE"),
          flag_on("--no-python", "execute PROGRAM itself, also if it is a script NAME.py",
              &RunRequest::no_python)
              .variable("PET_NO_PYTHON")}};
}

Group end_flags() {
  return {"How it ends",
      {flag("--max-restarts", "N", "restarts of all ranks after a failure", &RunRequest::options,
           &Options::max_restarts)
              .within(0, kMostRestarts)
              .variable("PET_MAX_RESTARTS"),
          flag_on("--spares", "a process for each rank waits to take its place after a failure",
              &RunRequest::options, &Options::spares),
          launch::hang_timeout_flag<RunRequest>(
              [](RunRequest& request, const FlagSpec&, Text text) {
                request.options.hang_timeout = launch::hang_timeout_of(text);
              }),
          flag("--grace-period", "SECONDS", "seconds between a forwarded signal and SIGKILL",
              &RunRequest::options, &Options::grace_period)
              .within(0, 1e6),
          flag_by<RunRequest>(
              "--signals-to-handle", "NAMES", "signals to forward to the ranks", read_signals)
              .usually("SIGTERM,SIGINT,SIGHUP,SIGQUIT")
              .variable("PET_SIGNALS_TO_HANDLE"),
          flag("--monitor-interval", "SECONDS", "ignored, for torchrun: exits are noticed at once",
              &RunRequest::monitor_interval)
              .usually("")
              .within(0, 1e6)
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
              [](RunRequest& request, const FlagSpec& flag, Text text) {
                for (const std::string& rank : listed(text))
                  request.options.output.shown_ranks.push_back(whole_number(flag.name, rank));
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

// Ranks of `lockstep train` that are started again together are treated as by that verb. The
// launcher does not see which programs and LibTorch the other nodes have.
void suit_train(Options& options) {
  Meeting& meeting = *options.rendezvous;
  const std::vector<std::string> flags(options.arguments.begin() + 1, options.arguments.end());
  if (const auto output = train_flags().parse(flags).find("--output"))
    meeting.run_here = [folder = *output] { return run_id_of_folder(folder); };
  options.lockstep_codes = true;
  options.grace_after_failure = std::chrono::milliseconds(0);
  const std::string program = sibling_program("train", "lockstep-train");
  meeting.same.emplace_back("the SHA-256 of lockstep-train", sha256_of_file(program));
  meeting.same.emplace_back("its LibTorch", build_facts().at("libtorch").get<std::string>());
}

/// Names Python as the program of a script or module, which becomes its first argument.
void start_by_python(RunRequest& request) {
  Options& options = request.options;
  check(!request.is_module || !request.no_python,
      "run: --module names a module of Python, and --no-python says there is no Python");
  const bool is_script =
      !request.no_python && (request.is_module || options.program.ends_with(".py"));
  const std::string name = options.program.substr(options.program.rfind('/') + 1);
  check(!options.spares || (!is_script && !name.starts_with("python")),
      "run: --spares: a program of Python does not wait for a rank: it would train alone, or end");
  if (!is_script) return;
  const std::string python = system_variable("PYTHON_EXEC");  // torchrun's
  options.arguments.insert(options.arguments.begin(), options.program);
  if (request.is_module) options.arguments.insert(options.arguments.begin(), "-m");
  options.program = python.empty() ? "python3" : python;
}

void resolve(RunRequest& request, const GivenFlags& given) {
  Options& options = request.options;
  if (!options.oversubscribe) launch::check_crowd(options.workers, usable_cpu_count());
  start_by_python(request);
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
