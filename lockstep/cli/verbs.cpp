#include "lockstep/cli/verbs.h"

#include <iostream>
#include <map>
#include <set>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"

namespace lockstep::cli {
namespace {

std::string overview() {
  return R"(Usage: lockstep VERB [flags]

Distributes training over devices, processes and hosts.

  run --nproc-per-node N PROGRAM    start a program once per rank, as torchrun does
  hosts --count N -- COMMAND        run a command on several hosts, made within this machine or real
  train [flags]                     train a model on a data set, on one rank or several
  eval --run DIR                    evaluate what was trained: scores, confusion, the worst samples
  sample --run DIR --prompt TEXT    let a trained language model go on with a prompt
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

using Words = std::vector<std::string>;
using Verb = int (*)(const Words&);

const std::map<std::string, Verb> kVerbs{{"run", run}, {"hosts", hosts}, {"train", train},
    {"eval", eval}, {"sample", sample}, {"data", data}, {"convert", convert}, {"new", new_project},
    {"report", report}, {"env", env}, {"help", help}};

// Of a program of their own, so that those who only train need not build it.
const std::set<std::string> kBenchVerbs{"bench", "collectives", "plan"};

int run_bench_program(const std::string& verb, Words arguments) {
  arguments.insert(arguments.begin(), verb);
  become(verb, sibling_program(verb, "lockstep-bench"), arguments);
}

int run_train_program(const std::string& verb, Words arguments) {
  arguments.insert(arguments.begin(), verb);
  become(verb, sibling_program(verb, "lockstep-train"), arguments, Settings::kForTensors);
}

[[noreturn]] void refuse(const std::string& word) {
  std::vector<std::string> known{"--version", "--help"};
  for (const auto& verb : kVerbs) known.push_back(verb.first);
  known.insert(known.end(), kBenchVerbs.begin(), kBenchVerbs.end());
  const char* kind = word[0] == '-' ? "flag " : "verb ";
  throw InvalidArgument(
      concat("there is no ", kind, word, did_you_mean(word, known), " (lockstep help lists all)"));
}

}  // namespace

int eval(const Words& arguments) { return run_train_program("eval", arguments); }

int sample(const Words& arguments) { return run_train_program("sample", arguments); }

int help(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments.front();
  check(arguments.size() < 2, "help: takes one verb");
  if (verb.empty() || verb == "help" || verb[0] == '-') {
    std::cout << overview();
    return 0;
  }
  return dispatch({verb, "--help"});
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::cerr << overview();
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string& word = arguments.front();
  if (word == "--version") {
    std::cout << "lockstep " LOCKSTEP_VERSION "\n";
    return 0;
  }
  const Words rest(arguments.begin() + 1, arguments.end());
  if (kBenchVerbs.contains(word)) return run_bench_program(word, rest);
  const auto verb = kVerbs.find(word == "--help" || word == "-h" ? "help" : word);
  if (verb == kVerbs.end()) refuse(word);
  return verb->second(rest);
}

}  // namespace lockstep::cli
