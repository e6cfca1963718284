#include "lockstep/launch/hosts/hosts.h"

#include <iostream>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::cli {
namespace {

constexpr const char* kHostsDescription =
    R"(Runs a command on several hosts at once: hosts made within this machine, or real ones.

A made host has processes, a name, a loopback and an interface of its own, and no shared memory with the others;
files are those of this machine. All are joined by a switch, each at the rate that --rate gives. This needs root.
)";

constexpr const char* kHostsExamples = R"(Examples:
  lockstep hosts --count 2 --rate 1gbit -- lockstep run --nproc-per-node 2 -- lockstep train --output runs/two
                                  two hosts of two ranks; 'lockstep' means this program
  lockstep hosts --count 4 -- sh -c 'ip -brief address; echo host $PET_NODE_RANK of $PET_NNODES'
  lockstep hosts --count 2 --max-restarts 1 --kill 1@20 -- lockstep run -- lockstep train
                                  a drill: host 1 dies after 20 seconds
  lockstep hosts --names node0,node1 -- lockstep run --nproc-per-node 8 -- lockstep train
                                  real hosts, by ssh, in the same folder

Notes:
  Each command gets its number and its peers from PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, which
  lockstep run and torchrun read as defaults of their flags. The standard output of host 0 is passed on unchanged, every
  other line begins with [host K].
  The first command that fails ends all, and its exit code is returned (128+n for signal n); one that lost its peers
  (code 5) is not reported as the cause when another failed. With --max-restarts N all are restarted, N times in all,
  with TORCHELASTIC_RESTART_COUNT and the port one higher. Nothing is left behind, even after SIGKILL.
  A real host needs the program and this folder under the same paths, and a login without a password prompt. OMP_*,
  PET_*, NCCL_* and GLOO_* variables, LOCKSTEP_SECRET and LOCKSTEP_SIMD are set there, too.

Exit codes: those of the command; 2 bad flags, 4 hosts cannot be made here.)";

constexpr double kMostCores = 4096, kMostHostsPort = 65535;

FlagGroup<launch::HostsOptions> hosts_flags() {
  using Set = launch::HostsOptions;
  using Text = const std::string&;
  return {"Options",
      {flag("--count", "N", "hosts to make within this machine", &Set::count)
              .within(1, launch::HostNetwork::kMostHosts)
              .usually(""),
          flag_by<Set>("--rate", "RATE",
              "link rate of each made host, in each direction: 1gbit, 100mbit",
              [](Set& options, const FlagSpec&, Text text) {
                options.rate = launch::parse_rate(text);
              })
              .usually("no limit"),
          flag("--cores-a-host", "K", "cores of each made host", &Set::cores_a_host)
              .within(1, kMostCores)
              .usually("all, shared evenly"),
          flag("--names", "A,B,...", "real hosts, each HOST or USER@HOST; the first is host 0",
              &Set::names),
          flag("--by", "PROGRAM", "program that runs a command on a host: PROGRAM NAME COMMAND",
              &Set::by),
          flag("--master-port", "PORT", "port on which host 0's command shall listen",
              &Set::master_port)
              .within(1, kMostHostsPort),
          flag("--max-restarts", "N", "restarts of all hosts after a failure", &Set::max_restarts)
              .within(0, kMostHostsPort),
          flag_by<Set>("--kill", "HOST@SECONDS",
              "as a drill, kill that made host's processes once, after SECONDS",
              [](Set& options, const FlagSpec&, Text text) {
                options.drill = launch::parse_drill(text);
              }),
          flag("--grace-period", "SECONDS", "seconds between a forwarded signal and SIGKILL",
              &Set::grace_period)
              .within(0, 1e6),
          flag_on("--quiet", "print only why it failed", &Set::quiet).letter("-q")}};
}

// How a made host's first process is started; for nobody else.
int be_a_host(const std::vector<std::string>& arguments) {
  check(arguments.size() > 2, "hosts: --inside is for lockstep itself");
  return launch::run_as_host(arguments[1], {arguments.begin() + 2, arguments.end()});
}

}  // namespace

int hosts(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "--inside") return be_a_host(arguments);
  const FlagTable<launch::HostsOptions> table(
      {.verb = "hosts",
          .usage = "lockstep hosts --count N | --names A,B [flags] -- COMMAND [ARGUMENTS...]",
          .description = kHostsDescription,
          .footer = kHostsExamples},
      {hosts_flags()});
  const GivenFlags given = table.parse(arguments, AfterFlags::kProgram);
  if (given.asks_help) {
    std::cout << table.help();
    return 0;
  }
  check(!given.has("--by") || given.has("--names"),
      "hosts: --by starts the command on real hosts; name them by --names");
  launch::HostsOptions options;
  table.read(options, given);
  if (!given.program.empty()) {
    options.program = given.program.front();
    options.arguments.assign(given.program.begin() + 1, given.program.end());
  }
  return launch::run_hosts(options);
}

}  // namespace lockstep::cli
