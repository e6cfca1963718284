#include "lockstep/cli/plan/plan_flags.h"

#include <algorithm>
#include <set>

#include "lockstep/core/byte_size.h"
#include "lockstep/core/error.h"
#include "lockstep/core/flag_table.h"
#include "lockstep/core/text.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

using C = PlanCommand;
using Q = plan::Question;

constexpr int kMostPlaces = 1 << 20;

constexpr const char* kPlanDescription =
    R"(Predicts which way of spreading a training pays, on machines that need not be there.

One place of this machine is measured (or a --profile read), then a step of every way is simulated:
replicas with the buckets that DDP cuts, pipelines with the schedules that they execute.
)";

constexpr const char* kPlanExamples = R"(Examples:
  lockstep plan --model resnet18 --batch 128 --places 1,2,4
                                     measure here, and say which way pays
  lockstep plan --measure --model resnet18 --batch 128 --save resnet18.json
                                     only measure
  lockstep plan --profile resnet18.json --batch 128 --nodes 1,2,4,8 --link 25Gbit,50us
  lockstep plan --profile resnet18.json --batch-a-place 128 --nodes 1,2,4 --link 10Gbit,50us
                --price 3.06 --samples 4500000 --output plan.html
                                     time and money of 90 epochs of 50,000 images

Exit codes: 0 done, 2 bad flags, 3 a bad profile, 4 disk.)";

std::vector<int> counts(const FlagSpec& flag, const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& item : split(text, ',')) {
    const auto number = parse_number<int>(item);
    check(number && *number >= 1 && *number <= kMostPlaces, "plan: ", flag.name,
        " must be whole numbers from 1, separated by commas: ", printable(text));
    numbers.push_back(*number);
  }
  check(std::set<int>(numbers.begin(), numbers.end()).size() == numbers.size(), "plan: ", flag.name,
      " names something twice: ", text);
  return numbers;
}

template <typename Take>
Flag<C> counts_flag(const char* name, const char* help, const char* usual, const Take& take) {
  return flag_by<C>(name, "N,...", help,
      [take](C& command, const FlagSpec& flag, const std::string& text) {
        take(command) = counts(flag, text);
      })
      .usually(usual);
}

FlagGroup<C> what_group() {
  return {"What is trained",
      {flag("--model", "NAME", "model, as for lockstep train", &C::model),
          flag("--plugin", "FILE", "shared library with models of your own", &C::plugin)
              .usually("none"),
          flag("--data", "NAME[:DIR]", "data to measure with", &C::data),
          flag("--precision", "P", "32, bf16-mixed or 16-mixed", &C::precision),
          flag("--batch", "N", "samples of a step, on all places together", &C::question, &Q::batch)
              .from(1)
              .usually("128"),
          flag_on("--batch-a-place", "--batch is that of each place: more places, larger steps",
              &C::question, &Q::is_batch_of_place),
          flag("--samples", "N", "of the whole training: adds hours and cost", &C::question,
              &Q::samples)
              .from(0)
              .usually("not asked")}};
}

FlagGroup<C> measuring_group() {
  return {"What is known",
      {flag("--profile", "FILE", "costs that were measured before, or elsewhere", &C::profile)
              .usually("measured now"),
          flag_on("--measure", "measure the profile, and end", &C::measures_only),
          counts_flag(
              "--measure-batches", "batches of a place to measure with",
              "the batch, a half, a quarter, ... of it",
              [](C & command) -> auto& { return command.batches; }),
          flag("--cores-a-place", "N", "cores of a place", &C::cores_a_place).from(1).to(1024),
          flag("--save", "FILE", "keep the measured profile", &C::save)
              .usually("plan-MODEL.json with --measure, else nowhere")}};
}

FlagGroup<C> machines_group() {
  return {"On which machines",
      {counts_flag(
           "--nodes", "numbers of nodes", "1",
           [](C & command) -> auto& { return command.question.nodes; }),
          counts_flag(
              "--places", "numbers of places a node", "1,2",
              [](C & command) -> auto& { return command.question.places; }),
          flag_by<C>("--link", "RATE,LATENCY", "between nodes: 25Gbit,50us",
              [](C& command, const FlagSpec&, const std::string& text) {
                const double share = command.question.machine.between.core_share;
                command.question.machine.between = plan::parse_link(text);
                command.question.machine.between.core_share = share;
              })
              .usually("10Gbit,50us"),
          flag_by<C>("--within", "RATE,LATENCY", "between places of a node",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.question.machine.within = plan::parse_link(text);
                command.has_within = true;
              })
              .usually("the profile's"),
          flag_by<C>("--memory", "SIZE", "memory of a place: 16G",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.question.machine.memory_bytes = static_cast<double>(parse_bytes(text));
              })
              .usually("not limited"),
          flag_by<C>("--price", "X", "of a node for an hour",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.machine.price = flag.real_number(text);
              })
              .real()
              .from(0)
              .usually("none")}};
}

FlagGroup<C> ways_group() {
  return {"Which ways",
      {flag_by<C>("--ways", "WAY,...", "serial, dp, ddp, mp, pp, ddp+mp, ddp+pp",
           [](C& command, const FlagSpec&, const std::string& text) {
             command.question.ways.kinds = split(text, ',');
           }).usually("all"),
          flag_by<C>("--schedule", "NAME,...", "of pp: gpipe, 1f1b, interleaved, zero-bubble",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.question.ways.schedules.clear();
                for (const std::string& name : split(text, ','))
                  command.question.ways.schedules.push_back(schedule_kind(name));
              })
              .usually("1f1b"),
          counts_flag(
              "--chunks", "micro-batches of pp", "2, 4, 8, ... up to 4 a stage",
              [](C & command) -> auto& { return command.question.ways.micro_batches; })}};
}

FlagGroup<C> plan_output_group() {
  return {"What it shows", {flag("--output", "FILE",
                                "write a page too: one .html file, with the "
                                "step of the way that is taken",
                                &C::output)
                                   .usually("none"),
                               flag_on("--json", "end stdout with one JSON object", &C::json)}};
}

const FlagTable<C>& plan_table() {
  static const FlagTable<C> kTable(
      {.verb = "plan",
          .usage = "lockstep plan [flags] [-- flags of lockstep train]",
          .description = kPlanDescription,
          .footer = kPlanExamples},
      {what_group(), measuring_group(), machines_group(), ways_group(), plan_output_group()});
  return kTable;
}

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
  if (command.batches.empty()) command.batches = halves_of(command.question.batch);
  if (command.measures_only && command.save.empty())
    command.save = "plan-" + command.model + ".json";
  return command;
}

}  // namespace lockstep::cli
