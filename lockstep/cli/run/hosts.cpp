#include "lockstep/launch/hosts/hosts.h"

#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/hosts_options.h"
#include "lockstep/launch/hosts/inside.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription =
    R"(Runs a command on several hosts at once: hosts made within this machine, or real ones.

A made host has processes, a name, a loopback and an interface of its own, and no shared memory with the others;
files are those of this machine. All are joined by a switch, each at the rate that --rate gives. This needs root.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep hosts --count 2 --rate 1gbit -- lockstep run --nproc-per-node 2 -- lockstep train --output runs/two
                                  two hosts of two ranks; a bare lockstep is this very program
  lockstep hosts --count 4 -- sh -c 'ip -brief address; echo host $PET_NODE_RANK of $PET_NNODES'
  lockstep hosts --count 2 --max-restarts 1 --kill 1@20 -- lockstep run -- lockstep train
                                  a drill: all of host 1 dies after 20 seconds
  lockstep hosts --names node0,node1 -- lockstep run --nproc-per-node 8 -- lockstep train
                                  real hosts, by ssh, in this folder there

Notes:
  A command finds its place in PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, which lockstep run and
  torchrun take for their flags. What host 0 writes to its standard output passes as it is, all else begins with
  [host K].
  The first command that fails ends all, and its code is ours (128+n for a signal n); one that lost its peers (code 5)
  is not told as the cause when another failed. With --max-restarts N all are started again, N times in all, with
  TORCHELASTIC_RESTART_COUNT and the port one higher. Nothing is left at the end, even if this is killed.
  A real host needs the program and this folder under the same paths, and a login without a question. OMP_*, PET_*,
  NCCL_*, GLOO_* and LOCKSTEP_* variables travel there.

Exit codes: those of the command; 2 bad flags, 4 hosts cannot be made here.)";

struct Texts {
  std::string rate;
  std::string drill;
  double grace_seconds = 30;
};

void add_flags(CLI::App& app, launch::HostsOptions& options, Texts& texts) {
  use_our_layout(
      app, "Usage: lockstep hosts --count N | --names A,B [flags] -- COMMAND [ARGUMENTS...]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("--count", options.count)
      ->type_name("N")
      ->description("hosts to make within this machine");
  app.add_option("--rate", texts.rate)
      ->type_name("RATE")
      ->description("of each made host's link, each way, as 1gbit, 100mbit [no limit]");
  app.add_option("--cores-a-host", options.cores_a_host)
      ->type_name("K")
      ->description("of each made host [all, shared evenly]");
  app.add_option("--names", options.names)
      ->type_name("A,B,...")
      ->description("real hosts, each HOST or USER@HOST; the first is host 0")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--by", options.by)
      ->type_name("PROGRAM")
      ->description("what runs a command there: PROGRAM NAME COMMAND [ssh]");
  app.add_option("--master-port", options.master_port)
      ->type_name("PORT")
      ->description("where host 0's command is to listen [29500]");
  app.add_option("--max-restarts", options.max_restarts)
      ->type_name("N")
      ->description("starts of all again after a failure [0]");
  app.add_option("--kill", texts.drill)
      ->type_name("HOST@SECONDS")
      ->description("kill all of that made host's command then, once: a drill");
  app.add_option("--grace-period", texts.grace_seconds)
      ->type_name("SECONDS")
      ->description("from a passed-on signal to SIGKILL [30]");
  app.add_flag("-q,--quiet", options.quiet, "say nothing but why it failed");
  app.set_help_flag("-h,--help", "print this");
}

/// Reads the flags; nothing when they ask for help, which is then printed.
std::optional<launch::HostsOptions> parse_hosts(const std::vector<std::string>& arguments) {
  CLI::App app;
  launch::HostsOptions options;
  Texts texts;
  add_flags(app, options, texts);
  const SplitArguments split = split_at_program(arguments, flag_names(app));
  if (!parse_flags(app, "hosts", split.flags)) {
    std::cout << app.help();
    return std::nullopt;
  }
  if (!texts.rate.empty()) options.rate = launch::parse_rate(texts.rate);
  if (!texts.drill.empty()) options.drill = launch::parse_drill(texts.drill);
  check(
      texts.grace_seconds >= 0 && texts.grace_seconds <= 1e6,
      "hosts: --grace-period must not be negative: ", texts.grace_seconds);
  options.grace_period = std::chrono::milliseconds(static_cast<long>(texts.grace_seconds * 1000));
  if (split.rest.empty()) return options;
  options.program = split.rest.front();
  options.arguments.assign(split.rest.begin() + 1, split.rest.end());
  return options;
}

// How a made host's first process is started; for nobody else.
int be_a_host(const std::vector<std::string>& arguments) {
  check(arguments.size() > 2, "hosts: --inside is for lockstep itself");
  return launch::run_as_host(arguments[1], {arguments.begin() + 2, arguments.end()});
}

}  // namespace

int hosts(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "--inside") return be_a_host(arguments);
  const auto options = parse_hosts(arguments);
  return options ? launch::run_hosts(*options) : 0;
}

}  // namespace lockstep::cli
