#include "lockstep/cli/train/train_launch.h"

#include <algorithm>
#include <optional>

#include <CLI/CLI.hpp>
#include <signal.h>

#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualRestarts = 3;  // with several ranks; one alone needs no launcher

}  // namespace

TrainLaunch parse_train_launch(const std::vector<std::string>& arguments) {
  CLI::App app;
  std::string workers = "1";
  double grace_seconds = 30;
  std::optional<int> restarts;
  TrainLaunch plan;
  use_our_layout(app, "");
  app.set_help_flag();
  app.add_option("--nproc-per-node", workers);
  app.add_option("--grace-period", grace_seconds);
  app.add_option("--max-restarts", restarts);
  app.add_option("--log-dir", plan.options.output.log_dir);
  app.add_flag("!--no-pin", plan.options.pin);
  SplitArguments split = take_flags(arguments, flag_names(app));
  parse_flags(app, "train", split.flags);
  plan.rest = std::move(split.rest);
  const auto asks_help = [](const auto& word) { return word == "--help" || word == "-h"; };
  const bool help = std::any_of(plan.rest.begin(), plan.rest.end(), asks_help);
  plan.options.workers = help ? 1 : launch::worker_count(workers);
  check(
      plan.options.output.log_dir.empty() || plan.options.workers > 1,
      "train: --log-dir keeps the output of ranks above 0, and there is one rank");
  plan.options.grace_period = std::chrono::milliseconds(static_cast<long>(grace_seconds * 1000));
  plan.options.max_restarts =
      help ? 0 : restarts.value_or(plan.options.workers > 1 ? kUsualRestarts : 0);
  plan.options.lockstep_codes = true;
  // A rank whose peer has died can save nothing any more, and takes SIGTERM for an order to do so.
  plan.options.grace_after_failure = std::chrono::milliseconds(0);
  plan.options.signals.push_back(SIGUSR1);
  plan.options.output.first_inherits = true;
  plan.options.output.shown_ranks = {0};
  return plan;
}

}  // namespace lockstep::cli
