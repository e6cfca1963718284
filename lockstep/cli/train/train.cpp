#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/cli/train/train_logs.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/environment.h"
#include "lockstep/launch/launcher.h"

namespace lockstep::cli {

int train(const std::vector<std::string>& arguments) {
  TrainLaunch plan = parse_train_launch(arguments);
  const std::string program = sibling_program("train", "lockstep-train");
  const bool inside_a_launcher = environment("RANK").has_value();
  if (inside_a_launcher || !plan.needs_a_launcher()) become("train", program, plan.rest);
  keep_logs_with_run(plan);
  launch::LaunchOptions options = plan.options;
  options.program = program;
  options.arguments = plan.rest;
  return launch::launch(options);
}

}  // namespace lockstep::cli
