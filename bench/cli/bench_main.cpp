// Measures and reports; `lockstep` executes it for the verbs bench, report and collectives.

#include <csignal>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"

namespace lockstep::cli {
namespace {

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
}  // namespace lockstep::cli

int main(int count, char** values) {
  return lockstep::run_program("lockstep", lockstep::cli::run_verb, count, values);
}
