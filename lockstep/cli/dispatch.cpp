#include <iostream>
#include <map>
#include <set>

#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;
using Verb = int (*)(const Words&);

const std::map<std::string, Verb> kVerbs{{"run", run}, {"hosts", hosts}, {"train", train},
    {"eval", eval}, {"data", data}, {"convert", convert}, {"new", new_project}, {"report", report},
    {"env", env}, {"help", help}};

// Of a program of their own, so that those who only train need not build it.
const std::set<std::string> kBenchVerbs{"bench", "collectives", "plan"};

int run_bench_program(const std::string& verb, Words arguments) {
  arguments.insert(arguments.begin(), verb);
  become(verb, sibling_program(verb, "lockstep-bench"), arguments);
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
