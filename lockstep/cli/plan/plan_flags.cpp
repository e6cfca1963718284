#include "lockstep/cli/plan/plan_flags.h"

#include <algorithm>
#include <iterator>

#include "lockstep/cli/plan/plan_table.h"
#include "lockstep/cli/plan/then_train.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/plan/scenario.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

void check_ways(const std::vector<std::string>& kinds) {
  static const std::vector<std::string> kKnown{
      "serial", "dp", "ddp", "mp", "pp", "ddp+mp", "ddp+pp"};
  for (const std::string& kind : kinds) {
    check(std::find(kKnown.begin(), kKnown.end(), kind) != kKnown.end(),
        "plan: --ways: there is no way ", printable(kind), did_you_mean(kind, kKnown));
  }
}

// A cost is known between the batches that were measured: replicas and micro-batches have small
// ones.
std::vector<int> halves_of(double batch) {
  std::vector<int> batches;
  for (auto each = static_cast<int>(batch); each >= 1 && batches.size() < 5; each /= 2)
    batches.push_back(each);
  return batches;
}

void check_train_flags(const std::vector<std::string>& words) {
  const GivenFlags given = train_flags().parse(words);
  check(!given.asks_help, "plan: lockstep help train lists the flags that may follow --");
  TrainOptions options;
  train_flags().read(options, given);
}

}  // namespace

std::string plan_help() { return plan_table().help(); }

std::optional<PlanCommand> parse_plan(const std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const GivenFlags given = plan_table().parse({arguments.begin(), end});
  if (given.asks_help) return std::nullopt;
  PlanCommand command;
  command.question.batch = 128;
  command.question.places = {1, 2};
  command.question.machine.between = plan::parse_link("10Gbit,50us");
  plan_table().read(command, given);
  if (end != arguments.end()) command.train_flags.assign(std::next(end), arguments.end());
  check_train_flags(command.train_flags);
  check_ways(command.question.ways.kinds);
  check(command.profile.empty() || !command.measures_only,
      "plan: --profile is there already, and --measure would measure it");
  check(command.profile.empty() || command.train_flags.empty(),
      "plan: flags after -- are for what is measured, and --profile was");
  check(command.output.empty() || command.output.ends_with(".html"),
      "plan: --output must be a file that ends in .html: ", command.output);
  for (const std::string& text : command.scenarios) plan::changed(command.question, text);
  check(command.device.empty() || !command.measures_only,
      "plan: --measure measures this machine; leave out --device");
  check(command.device_rate == 0 || !command.device.empty(),
      "plan: --device-rate is that of a --device");
  if (command.trains) {
    plan_for_training(command);
    // What is measured is confirmed at once, and kept by nobody.
    if (!given.has("--measure-rounds")) command.measure_rounds = 1;
  }
  if (command.batches.empty()) command.batches = halves_of(command.question.batch);
  if (command.measures_only && command.save.empty())
    command.save = "plan-" + command.model + ".json";
  return command;
}

}  // namespace lockstep::cli
