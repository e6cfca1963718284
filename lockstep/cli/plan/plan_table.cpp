#include "lockstep/cli/plan/plan_table.h"

#include <cstddef>
#include <cstdint>
#include <set>

#include "lockstep/bench/planning/measured_link.h"
#include "lockstep/core/byte_size.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::cli {
namespace {

using C = PlanCommand;
using Q = plan::Question;
using W = plan::WayChoice;

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
  lockstep plan --profile resnet18.json --batch 128 --batch-a-place --nodes 1,2,4 --link 10Gbit,50us
                --price 3.06 --samples 4500000 --output plan.html
                                     time and money of 90 epochs of 50,000 images
  lockstep plan --profile resnet50.json --device V100 --places 1,2,4,8 --what-if within=10GB

Exit codes: 0 done, 2 bad flags, 3 a bad profile, 4 disk.)";

std::vector<int> counts(const FlagSpec& flag, const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& item : split(text, ',')) {
    const auto number = parse_number<int>(item);
    check(number && *number >= 1 && *number <= plan::kMostPlaces, "plan: ", flag.name,
        " must be whole numbers from 1, separated by commas: ", printable(text));
    numbers.push_back(*number);
  }
  check(std::set<int>(numbers.begin(), numbers.end()).size() == numbers.size(), "plan: ", flag.name,
      " names something twice: ", text);
  return numbers;
}

plan::Link link_between_nodes(const std::string& text) {
  if (!text.ends_with(".jsonl")) return plan::parse_link(text);
  return bench::link_of_sweep(bench::read_sweep(text), text);
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
          flag_by<C>("--batch", "N", "samples of a step, on all places together",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.batch = static_cast<double>(flag.whole_number(text));
              })
              .whole()
              .from(1)
              .to(1e9)
              .usually("128"),
          flag_on("--batch-a-place", "--batch is that of each place: more places, larger steps",
              &C::question, &Q::is_batch_of_place),
          flag("--samples", "N", "of the whole training: adds hours and cost", &C::question,
              &Q::samples)
              .above(0)
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
          flag("--measure-rounds", "N",
              "how often each of its trainings is made; all but the first are short",
              &C::measure_rounds)
              .from(1)
              .to(100)
              .usually("2; 1 for --parallel auto"),
          flag("--device", "NAME",
              "costs moved to a device that data sheets describe: K80, V100, TITAN-RTX, T4, A100, "
              "H100, L4",
              &C::device)
              .usually("the profile's own"),
          flag("--device-rate", "X", "samples/s that one such device reaches with the batch",
              &C::device_rate)
              .above(0)
              .usually("by its FLOP/s"),
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
          flag_by<C>("--link", "RATE,LATENCY|FILE",
              "between nodes: 25Gbit,50us, or the file of lockstep collectives between them",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.question.machine.between = link_between_nodes(text);
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
                const std::int64_t bytes = parse_bytes(text);
                check(bytes > 0, "plan: --memory must be above 0: ", printable(text));
                command.question.machine.memory_bytes = static_cast<double>(bytes);
              })
              .usually("not limited"),
          flag_by<C>("--price", "X", "of a node for an hour: --samples then cost so much",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.machine.price = flag.real_number(text);
              })
              .real()
              .from(0)
              .usually("none"),
          flag_on("--made-hosts",
              "nodes are made within one machine, as lockstep hosts --count does", &C::question,
              &Q::machine, &plan::Machine::is_one_machine),
          flag_by<C>("--jitter", "X", "relative standard deviation of places in one step: 0.05",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.machine.jitter = flag.real_number(text);
              })
              .real()
              .from(0)
              .to(1)
              .usually(0)}};
}

FlagGroup<C> failures_group() {
  const auto hours = [](C& command, const FlagSpec& flag, const std::string& text) {
    command.question.failures.between = 3600 * flag.real_number(text);
  };
  return {"What fails",
      {flag_by<C>("--mtbf", "HOURS", "mean time between failures of one node", hours)
              .real()
              .above(0)
              .usually("never"),
          flag("--snapshot-seconds", "X", "during which a snapshot stops the training",
              &C::question, &Q::failures, &plan::Failures::snapshot)
              .from(0),
          flag("--snapshot-interval", "X", "seconds between snapshots", &C::question, &Q::failures,
              &plan::Failures::interval)
              .from(0)
              .usually("the best one"),
          flag("--recovery-seconds", "X", "from a failure to the next step", &C::question,
              &Q::failures, &plan::Failures::recovery)
              .from(0)}};
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
              [](C & command) -> auto& { return command.question.ways.micro_batches; }),
          flag("--checkpoint", "WHEN", "recompute activations of stages: {}", &C::question,
              &Q::ways, &W::settings, &plan::Way::checkpoint),
          flag("--grad-accum-steps", "N", "batches of a replica in one step, without stages",
              &C::question, &Q::ways, &W::settings, &plan::Way::accumulated)
              .from(1)
              .to(100000),
          flag_on("--shard-optimizer", "replicas of ddp share the optimizer's state", &C::question,
              &Q::ways, &W::settings, &plan::Way::is_sharded),
          flag("--comm-hook", "HOW", "how ddp sends gradients: {}", &C::question, &Q::ways,
              &W::settings, &plan::Way::sent_as),
          flag_by<C>("--bucket-mb", "X", "MiB of gradients from which ddp sends a bucket",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.ways.settings.bucket_bytes =
                    static_cast<std::size_t>(flag.real_number(text) * (1 << 20));
              })
              .real()
              .above(0)
              .to(1e6)
              .usually(25)}};
}

FlagGroup<C> plan_output_group() {
  return {"What it shows",
      {flag("--what-if", "NAME=VALUE,...",
           "the same with a change, beside it: link=100Gbit,places=8 (repeatable)", &C::scenarios)
              .repeated(),
          flag_on("--explain", "where the time of a step of each kind of way goes", &C::explains),
          flag("--beside", "RUN",
              "set the step beside that of a run that was trained with --profile", &C::beside)
              .usually("none"),
          flag("--confirm", "N", "train the N fastest for some steps, where this machine can",
              &C::confirmed)
              .from(0)
              .to(1000),
          flag_on("--train", "train with the fastest; the flags after -- say what", &C::trains),
          flag("--output", "FILE",
              "write a page too: one .html file, with the "
              "step of the way that is taken",
              &C::output)
              .usually("none"),
          flag_on("--json", "end stdout with one JSON object", &C::json)}};
}

}  // namespace

const FlagTable<C>& plan_table() {
  static const FlagTable<C> kTable(
      {.verb = "plan",
          .usage = "lockstep plan [flags] [-- flags of lockstep train]",
          .description = kPlanDescription,
          .footer = kPlanExamples},
      {what_group(), measuring_group(), machines_group(), failures_group(), ways_group(),
          plan_output_group()});
  return kTable;
}

}  // namespace lockstep::cli
