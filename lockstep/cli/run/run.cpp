#include <iostream>

#include "lockstep/cli/run/run_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

int run(const std::vector<std::string>& arguments) {
  const auto options = parse_run(arguments);
  if (!options) {
    std::cout << run_help();
    return 0;
  }
  return launch::launch(*options);
}

}  // namespace lockstep::cli
