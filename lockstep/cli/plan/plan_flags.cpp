#include "lockstep/cli/plan/plan_flags.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "lockstep/cli/plan/plan_table.h"
#include "lockstep/cli/plan/then_train.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/schedule/flags_of_ways.h"
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

std::string ways_with(const FlagOfWays& flag) {
  std::vector<std::string> ways;
  for (const std::string_view way : flag.ways)
    if (!way.empty()) ways.emplace_back(way);
  return joined(ways, ", ");
}

using Names = std::vector<std::string_view>;

void refuse_all(const GivenFlags& given, const Names& names, const std::string& reason) {
  for (const std::string_view name : names) check(!given.has(name), "plan: ", name, ' ', reason);
}

void check_measuring(const GivenFlags& given) {
  const Names measured{"--measure", "--model", "--plugin", "--data", "--precision", "--batch",
      "--measure-batches", "--measure-rounds", "--cores-a-place", "--save"};
  for (const GivenFlag& flag : given.flags)
    check(std::find(measured.begin(), measured.end(), flag.spec->name) != measured.end(),
        "plan: ", flag.spec->name, " asks, and --measure only measures; leave out one of them");
  check(!given.has("--batch") || !given.has("--measure-batches"),
      "plan: --measure-batches says what is measured; leave out --batch");
}

// What was measured is not measured again; to confirm a choice is to train it.
void check_profile_flags(const PlanCommand& command, const GivenFlags& given) {
  refuse_all(given, {"--measure-batches", "--measure-rounds", "--save"},
      "is about what is measured, and --profile was; leave it out");
  if (command.confirmed > 0) return;
  refuse_all(given, {"--plugin", "--data", "--cores-a-place"},
      "says how to train, and --profile has been measured; leave it out, or add --confirm");
  check(command.train_flags.empty(),
      "plan: flags after -- are for what is trained, and --profile has been measured; leave them "
      "out, or add --confirm");
}

void check_device_flags(const PlanCommand& command) {
  check(command.device_rate == 0 || !command.device.empty(),
      "plan: --device-rate is that of a --device");
  check(command.device.empty() || command.confirmed == 0,
      "plan: --confirm trains on this machine, and --device is another; leave out one");
}

void check_failure_flags(const plan::Failures& failures, const GivenFlags& given) {
  if (given.has("--mtbf")) {
    check(failures.snapshot > 0 || failures.interval > 0,
        "plan: --mtbf needs --snapshot-seconds: how often to save depends on what it costs");
    return;
  }
  refuse_all(given, {"--recovery-seconds"}, "is after a failure; add --mtbf");
  check(given.has("--snapshot-seconds") == given.has("--snapshot-interval"),
      "plan: --snapshot-seconds and --snapshot-interval say together what snapshots cost; add the "
      "other, or --mtbf");
}

// A setting that none of the ways has would change nothing.
void check_settings(const PlanCommand& command, const GivenFlags& given) {
  const std::vector<std::string>& kinds = command.question.ways.kinds;
  if (kinds.empty()) return;
  for (const FlagOfWays& each : kFlagsOfWays) {
    const bool is_taken = std::any_of(kinds.begin(), kinds.end(),
        [&](const std::string& kind) { return takes_flag(kind, each.flag); });
    check(is_taken || !given.has(each.flag), "plan: ", each.flag, " is for ", ways_with(each),
        ", and --ways names none of them");
  }
  const bool is_accumulated = std::any_of(kinds.begin(), kinds.end(),
      [](const std::string& kind) { return !takes_flag(kind, "--stages"); });
  check(is_accumulated || !given.has("--grad-accum-steps"),
      "plan: --grad-accum-steps is for ways without stages, and --ways names none of them");
}

void check_training(const GivenFlags& given) {
  refuse_all(given,
      {"--model", "--plugin", "--data", "--precision", "--batch", "--batch-a-place", "--nodes",
          "--places", "--link", "--made-hosts"},
      "is not asked with --train, whose flags after -- say what is trained, on this machine");
}

void check_flags(const PlanCommand& command, const GivenFlags& given) {
  if (command.trains) check_training(given);
  if (command.measures_only) check_measuring(given);
  if (!command.profile.empty()) check_profile_flags(command, given);
  check_device_flags(command);
  check_failure_flags(command.question.failures, given);
  check_settings(command, given);
  check(command.output.empty() || command.output.ends_with(".html"),
      "plan: --output must be a file that ends in .html: ", command.output);
  plan::check_question(command.question);
  for (const std::string& text : command.scenarios) plan::changed(command.question, text);
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
  check_flags(command, given);
  if (!command.profile.empty()) {
    if (!given.has("--model")) command.model.clear();
    if (!given.has("--precision")) command.precision.clear();
  }
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
