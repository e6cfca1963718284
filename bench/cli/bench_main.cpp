// Measures and reports; `lockstep` executes it for the verbs bench, plan, report and collectives.

#include <csignal>
#include <iostream>

#include "bench/cli/collectives_flags.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/cluster/place.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {
namespace {

launch::LaunchOptions launch_options(const CollectivesCommand& command) {
  launch::LaunchOptions options;
  options.workers = command.ranks;
  options.pin = command.pin;
  options.lockstep_codes = true;
  options.grace_after_failure = std::chrono::milliseconds(0);  // the others have nothing to save
  options.output.first_inherits = true;
  options.output.shown_ranks = {0};
  return options;
}

int run_verb(int count, char** values) {
  check(count > 1, "lockstep-bench is started by lockstep bench, plan, report and collectives");
  const std::string verb = values[1];
  const std::vector<std::string> arguments(values + 2, values + count);
  // A reader of its lines may go, as `head` does, and the study matters more.
  if (verb == "bench") std::signal(SIGPIPE, SIG_IGN);
  if (verb == "bench") return bench(arguments);
  if (verb == "plan") return plan(arguments);
  if (verb == "report" && !arguments.empty()) return report_measured(arguments);
  check(verb == "collectives", "lockstep-bench: there is no verb ", verb);
  return collectives(arguments);
}

}  // namespace

int collectives(const std::vector<std::string>& arguments) {
  const auto command = parse_collectives(arguments);
  if (!command) {
    std::cout << collectives_help();
    return 0;
  }
  cluster::adopt_rank_place();
  const bool inside_a_launcher = environment("RANK").has_value();
  check(!inside_a_launcher || !command->starts_ranks,
      "collectives: the launcher has started the ranks: give --nproc-per-node, --no-pin and "
      "--oversubscribe to it");
  if (!inside_a_launcher && !command->oversubscribe)
    launch::check_crowd(command->ranks, usable_cpu_count());
  const std::string program = sibling_program("collectives", "lockstep-collectives");
  if (inside_a_launcher || command->ranks_are_threads())
    become("collectives", program, arguments, Settings::kForTensors);
  check_sweep(command->sweep, command->ranks);
  launch::LaunchOptions options = launch_options(*command);
  options.program = program;
  options.arguments = arguments;
  return launch::launch(options);
}

}  // namespace lockstep::cli

int main(int count, char** values) {
  return lockstep::run_program("lockstep", lockstep::cli::run_verb, count, values);
}
