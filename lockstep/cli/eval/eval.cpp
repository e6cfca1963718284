#include <iostream>

#include "lockstep/cli/eval/eval_flags.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"

namespace lockstep::cli {

int eval(const std::vector<std::string>& arguments) {
  const GivenFlags given = eval_flags().parse(arguments);
  if (given.asks_help) {
    std::cout << eval_flags().help();
    return 0;
  }
  check_eval(given);
  std::vector<std::string> words{"eval"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become("eval", sibling_program("eval", "lockstep-train"), words, Settings::kForTensors);
}

}  // namespace lockstep::cli
