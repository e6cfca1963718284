#include <iostream>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {

std::string overview() {
  return R"(Usage: lockstep VERB [flags]

Distributes training over devices, processes and hosts.

  run --nproc-per-node N PROGRAM    start a program once per rank, as torchrun does
  hosts --count N -- COMMAND        run a command on several hosts, made within this machine or real
  train [flags]                     train a model on a data set, on one rank or several
  eval --run DIR                    evaluate what was trained: scores, confusion, the worst samples
  data fetch|check|synthesize|show  download, check, draw or look at a data set
  convert IN OUT                    convert weights: safetensors, PyTorch's .pt
  new DIR                           write a project with models of your own for train --plugin
  bench STUDY [--quick|--full]      run a study: which way of distributing is fastest here
  plan --model M --nodes 1,2,4      predict which way pays, on machines that need not be there
  report RUN... | BENCH             show what runs recorded; remake the tables and figures of a bench
  collectives [flags]               measure all_reduce and others over message sizes and backends
  env [--json]                      show facts about this host and this build
  help [VERB]                       explain a verb; lockstep VERB --help does too
  --version                         print the version

Examples:
  lockstep train --nproc-per-node 2                  two ranks train on Fashion-MNIST
  lockstep run --nproc-per-node 4 ./hello            four ranks of your own program
  lockstep env --json                                for a report or a script

Exit codes: 0 done, 1 unclassified, 2 bad flags, 3 bad data or snapshot, 4 environment (port, disk, permission),
            5 peers lost, 6 loss became NaN or Inf, 75 stopped and can be continued, 128+n signal n
)";
}

int help(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments.front();
  check(arguments.size() < 2, "help: takes one verb");
  if (verb.empty() || verb == "help" || verb[0] == '-') {
    std::cout << overview();
    return 0;
  }
  return dispatch({verb, "--help"});
}

}  // namespace lockstep::cli
