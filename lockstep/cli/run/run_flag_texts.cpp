#include "lockstep/cli/run/run_flag_texts.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/flag_parser.h"

namespace lockstep::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
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
  The first rank that fails, in time, ends the run within a second; its code is ours (128+n for a
  signal n), and what it said last is shown. What ranks have started and left is ended with the run.
  With --max-restarts N all ranks are ended and started again, up to N times in all: with
  TORCHELASTIC_RESTART_COUNT one higher and on another free port; logs are continued. A program that
  reports its steps (core/progress_page.h, as lockstep train does) is given up, whatever N is, when
  it dies again before a first step or at the same step. The last failure's code is ours; a signal
  to us while a restart is due ends the run with 128+n.
  On another node the failure is seen as lost connections, by the ranks there, after which their
  launcher ends them too.
  SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on; a second one kills at once.
  With as many cores as ranks each rank is pinned to its share of the cores; several runs on one
  host should be given their own cores (taskset) or use --no-pin.
  Every rank's OMP_NUM_THREADS is 1 unless it is set, and glibc is told to keep freed memory
  (GLIBC_TUNABLES): both as they serve training best. Your own values are kept.)";

CLI::Option* with_variable(CLI::Option* option, const std::string& name) {
  return option->envname("PET_" + name);
}

void add_process_flags(CLI::App& app, RunFlagTexts& texts) {
  const char* group = "What to start";
  with_variable(app.add_option("--nproc-per-node", texts.workers), "NPROC_PER_NODE")
      ->type_name("N")
      ->description("ranks on this host: a number, cpu, gpu, or auto (also -np) [1]")
      ->group(group);
  app.add_flag("--no-pin", texts.no_pin, "let each rank use all cores")->group(group);
  with_variable(app.add_option("--role", texts.role), "ROLE")
      ->type_name("NAME")
      ->description("is ROLE_NAME for the ranks [default]")
      ->group(group);
  app.add_flag("--no-python", texts.no_python, "changes nothing: PROGRAM is always run as it is")
      ->group(group);
}

void add_node_flags(CLI::App& app, RunFlagTexts& texts) {
  const char* group = "Several hosts (the same command on each, with its own --node-rank)";
  with_variable(app.add_option("--nnodes", texts.nodes), "NNODES")
      ->type_name("N")
      ->description("hosts that take part [1]")
      ->group(group);
  with_variable(app.add_option("--node-rank", texts.node_rank), "NODE_RANK")
      ->type_name("K")
      ->description("which of them this is, from 0 [0]")
      ->group(group);
  with_variable(app.add_option("--master-addr", texts.master_address), "MASTER_ADDR")
      ->type_name("HOST")
      ->description("host 0, as all others reach it [127.0.0.1 for one host]")
      ->group(group);
  with_variable(app.add_option("--master-port", texts.master_port), "MASTER_PORT")
      ->type_name("PORT")
      ->description("where rank 0 listens [29500; a free one for one host]")
      ->group(group);
  with_variable(app.add_option("--rdzv-endpoint", texts.endpoint), "RDZV_ENDPOINT")
      ->type_name("HOST[:PORT]")
      ->description("both of these in one")
      ->group(group);
  with_variable(app.add_option("--rdzv-backend", texts.rendezvous_backend), "RDZV_BACKEND")
      ->type_name("NAME")
      ->description("static: every host knows its number [static]")
      ->group(group);
  with_variable(app.add_option("--rdzv-id", texts.run_id), "RDZV_ID")
      ->type_name("ID")
      ->description("is TORCHELASTIC_RUN_ID for the ranks [none]")
      ->group(group);
  with_variable(app.add_flag("--standalone", texts.standalone), "STANDALONE")
      ->description("one host and a free port, whatever the variables say")
      ->group(group);
}

void add_end_flags(CLI::App& app, RunFlagTexts& texts) {
  const char* group = "How it ends";
  with_variable(app.add_option("--max-restarts", texts.max_restarts), "MAX_RESTARTS")
      ->type_name("N")
      ->description("starts of all ranks again after a failure, on one host [0]")
      ->group(group);
  app.add_option("--grace-period", texts.grace_seconds)
      ->type_name("SECONDS")
      ->description("from a passed-on signal to SIGKILL [30]")
      ->group(group);
  with_variable(app.add_option("--signals-to-handle", texts.signals), "SIGNALS_TO_HANDLE")
      ->type_name("NAMES")
      ->description("signals to pass on [SIGTERM,SIGINT,SIGHUP,SIGQUIT]")
      ->group(group);
  with_variable(app.add_option("--monitor-interval", texts.monitor_interval), "MONITOR_INTERVAL")
      ->type_name("SECONDS")
      ->description("changes nothing: an end is seen when it happens")
      ->group(group);
}

void add_output_flags(CLI::App& app, RunFlagTexts& texts) {
  const char* group =
      "What is shown and kept (MASK: 0 none, 1 stdout, 2 stderr, 3 both; or RANK:MASK,...)";
  with_variable(app.add_option("--log-dir", texts.log_dir), "LOG_DIR")
      ->type_name("DIR")
      ->description("an empty folder for a file of each rank's output")
      ->group(group);
  with_variable(app.add_option("-r,--redirects", texts.redirects), "REDIRECTS")
      ->type_name("MASK")
      ->description("streams that go to a file instead of the terminal [0]")
      ->group(group);
  with_variable(app.add_option("-t,--tee", texts.tee), "TEE")
      ->type_name("MASK")
      ->description("streams that go to a file and to the terminal [0]")
      ->group(group);
  with_variable(app.add_option("--local-ranks-filter", texts.shown_ranks), "LOCAL_RANKS_FILTER")
      ->type_name("RANKS")
      ->description("show only these local ranks, as 0,2 [all]")
      ->group(group);
  app.add_option("--log-line-prefix", texts.prefix)
      ->envname("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
      ->type_name("TEXT")
      ->description("of lines when several ranks are shown [[rank ${rank}] ]")
      ->group(group);
  app.add_flag("-v,--verbose", texts.verbose, "name each rank's process id")->group(group);
  app.add_flag("-q,--quiet", texts.quiet, "say nothing but why a run failed")->group(group);
  app.set_help_flag("-h,--help", "print this")->group(group);
}

}  // namespace

void add_run_flags(CLI::App& app, RunFlagTexts& texts) {
  use_our_layout(app, "Usage: lockstep run [flags] [--] PROGRAM [ARGUMENTS...]");
  app.description(
      "Starts a program once per rank, waits for all, and ends all when one fails.\n"
      "Flags mean what they mean for torchrun; PET_* variables are their defaults.\n");
  app.footer(kExamples);
  add_process_flags(app, texts);
  add_node_flags(app, texts);
  add_end_flags(app, texts);
  add_output_flags(app, texts);
}

}  // namespace lockstep::cli
