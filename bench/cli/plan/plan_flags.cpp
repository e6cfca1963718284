#include "bench/cli/plan/plan_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>

#include "bench/cli/plan/shipped_profiles.h"
#include "bench/planning/profile_of_runs.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/parallel/schedule/flags_of_ways.h"
#include "lockstep/plan/answer.h"
#include "lockstep/train/options/train_flags.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

// A model may be a file.
std::string file_name_of(const std::string& model) {
  return nn::is_exported(model) ? std::filesystem::path(model).stem().string() : model;
}

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
  lockstep plan --model resnet50 --device T4,A100,H100 --price T4=0.53,A100=4.1,H100=11
                --currency USD --places 1,2,4,8 --batch 256 --samples 115e6 --within-hours 48
                                     which devices to rent, and what they cost

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

plan::Link link_between_nodes(const std::string& text, double usual_latency) {
  if (!text.ends_with(".jsonl")) return plan::parse_link(text, usual_latency);
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

std::vector<std::string> devices_in(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& word : split(text, ',')) {
    names.push_back(plan::device_of(word).name);
    check(std::ranges::count(names, names.back()) == 1,
        "plan: --device names something twice: ", printable(text));
  }
  return names;
}

// A number alone has no name.
std::map<std::string, double> numbers_by_device(const FlagSpec& flag, const std::string& text) {
  std::map<std::string, double> numbers;
  for (const std::string& word : split(text, ',')) {
    const auto equals = word.find('=');
    const std::string name =
        equals == std::string::npos ? "" : plan::device_of(word.substr(0, equals)).name;
    const auto number =
        parse_number<double>(equals == std::string::npos ? word : word.substr(equals + 1));
    check(number && *number > 0 && std::isfinite(*number), "plan: ", flag.name,
        " must be a number above 0, or DEVICE=NUMBER,...: ", printable(text));
    check(name.empty() == (text.find(',') == std::string::npos && equals == std::string::npos),
        "plan: ", flag.name, " must be one number, or DEVICE=NUMBER for each: ", printable(text));
    check(numbers.emplace(name, *number).second, "plan: ", flag.name,
        " names something twice: ", printable(text));
  }
  return numbers;
}

void take_price(C& command, const FlagSpec& flag, const std::string& text) {
  command.device_prices = numbers_by_device(flag, text);
  const auto of_node = command.device_prices.find("");
  if (of_node == command.device_prices.end()) return;
  command.question.machine.price = of_node->second;
  command.device_prices.clear();
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
          flag("--samples", "N", "total samples; adds time and cost", &C::question, &Q::samples)
              .above(0)
              .usually("not asked")}};
}

FlagGroup<C> measuring_group() {
  return {"What is known",
      {flag("--profile", "FILE|MODEL",
           "costs that were measured before, or elsewhere, or that come with the program",
           &C::profile)
              .usually("measured now; with --device, of that model"),
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
          flag("--measure-minutes", "X",
              "about how long measuring may take: what there is no time for is left out",
              &C::measure_minutes)
              .above(0)
              .usually("4; no limit with --measure-batches"),
          flag_by<C>("--device", "NAME,...",
              "costs moved to devices that data sheets describe: K80, V100, TITAN-RTX, T4, A100, "
              "H100, H200, L4",
              [](C& command, const FlagSpec&, const std::string& text) {
                command.devices = devices_in(text);
              })
              .usually("the profile's own"),
          flag_by<C>("--device-rate", "X|NAME=X,...",
              "samples/s that one such device reaches with the batch",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.device_rates = numbers_by_device(flag, text);
              })
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
              "between nodes: 25Gbit,50us, or the file of lockstep collectives between them; a "
              "rate alone leaves the latency",
              [](C& command, const FlagSpec&, const std::string& text) {
                plan::Link& between = command.question.machine.between;
                between = link_between_nodes(text, between.latency);
              })
              .usually("10Gbit,50us"),
          flag_by<C>("--within", "RATE,LATENCY",
              "between places of a node; a rate alone leaves the latency",
              [](C& command, const FlagSpec&, const std::string& text) {
                plan::parse_link(text);  // refuses other texts
                command.within = text;
              })
              .usually("the profile's"),
          flag_by<C>("--memory", "SIZE", "memory of a place: 16G",
              [](C& command, const FlagSpec&, const std::string& text) {
                const std::int64_t bytes = parse_bytes(text);
                check(bytes > 0, "plan: --memory must be above 0: ", printable(text));
                command.question.machine.memory_bytes = static_cast<double>(bytes);
              })
              .usually("not limited"),
          flag_by<C>("--price", "X|NAME=X,...",
              "for an hour, of a node, or of each device by its name: --samples then cost so much",
              take_price)
              .usually("none"),
          flag("--currency", "NAME", "of --price and --budget", &C::question, &Q::currency)
              .usually("none"),
          flag("--within-hours", "X", "take the cheapest that ends in this time", &C::question,
              &Q::within_hours)
              .above(0)
              .usually("no matter"),
          flag("--budget", "X", "take what costs at most so much", &C::question, &Q::budget)
              .above(0)
              .usually("no matter"),
          flag_on("--made-hosts",
              "nodes are made within one machine, as lockstep hosts --count does", &C::question,
              &Q::machine, &plan::Machine::is_one_machine),
          flag("--jitter", "X", "relative standard deviation of places in one step: 0.05",
              &C::question, &Q::machine, &plan::Machine::jitter)
              .from(0)
              .to(1)}};
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

void take_peer(C& command, const FlagSpec& flag, const std::string& text) {
  constexpr std::string_view kName = "pytorch-dp";
  plan::Way& settings = command.question.ways.settings;
  const auto comma = text.find(',');
  check(text.substr(0, comma) == kName, "plan: ", flag.name, " must be ", kName,
      ", or with a time ", kName, ",0.02s: ", printable(text));
  settings.is_pytorch = true;
  if (comma == std::string::npos) return;
  settings.lock_seconds = parse_duration(text.substr(comma + 1));
}

FlagGroup<C> ways_group() {
  return {"Which ways",
      {flag_by<C>("--ways", "WAY,...", "serial, dp, ddp, fsdp, mp, pp, ddp+mp, ddp+pp",
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
          flag("--checkpoint", "WHEN",
              "compute forward again in backward: {}; except-last is for stages", &C::question,
              &Q::ways, &W::settings, &plan::Way::checkpoint),
          flag("--grad-accum-steps", "N", "batches of a replica in one step, without stages",
              &C::question, &Q::ways, &W::settings, &plan::Way::accumulated)
              .from(1)
              .to(100000),
          flag_on("--shard-optimizer", "replicas of ddp share the optimizer's state", &C::question,
              &Q::ways, &W::settings, &plan::Way::is_sharded),
          flag("--reshard", "WHEN", "fsdp gives up parameters that backward needs: {}",
              &C::question, &Q::ways, &W::settings, &plan::Way::reshard),
          flag("--replicas", "N", "copies of the model, of fsdp, each shared out over some places",
              &C::question, &Q::ways, &W::settings, &plan::Way::copies)
              .from(1)
              .to(plan::kMostPlaces),
          flag("--comm-hook", "HOW", "how ddp and fsdp send gradients: {}", &C::question, &Q::ways,
              &W::settings, &plan::Way::sent_as),
          flag_by<C>("--bucket-mb", "X", "MiB of gradients from which ddp sends a bucket",
              [](C& command, const FlagSpec& flag, const std::string& text) {
                command.question.ways.settings.bucket_bytes =
                    static_cast<std::size_t>(flag.real_number(text) * (1 << 20));
              })
              .real()
              .above(0)
              .to(1e6)
              .usually(25),
          flag_by<C>("--peer", "pytorch-dp[,TIME]",
              "dp as PyTorch's DataParallel does it, whose forward of each replica keeps Python's "
              "lock for so long: pytorch-dp,0.02s",
              take_peer)
              .usually("none")}};
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
          flag("--confirm", "N",
              "train N ways for some steps, those that cannot be told apart first, where this "
              "machine can",
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

void check_ways(const std::vector<std::string>& kinds) {
  const std::vector<std::string> known = all_names<Parallel>();
  for (const std::string& kind : kinds) {
    check(std::ranges::find(known, kind) != known.end(), "plan: --ways: there is no way ",
        printable(kind), did_you_mean(kind, known));
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
      "--measure-batches", "--measure-rounds", "--measure-minutes", "--cores-a-place", "--save"};
  for (const GivenFlag& flag : given.flags)
    check(std::ranges::find(measured, flag.spec->name) != measured.end(), "plan: ", flag.spec->name,
        " asks, and --measure only measures; leave out one of them");
  check(!given.has("--batch") || !given.has("--measure-batches"),
      "plan: --measure-batches says what is measured; leave out --batch");
}

// Moved to a device, a profile gives the layers' shares: one that is measured here is no better,
// unless the flags say what to measure.
bool takes_shipped_profile(const PlanCommand& command, const GivenFlags& given) {
  const Names measured{"--profile", "--measure", "--measure-batches", "--measure-rounds",
      "--measure-minutes", "--save", "--plugin", "--data", "--cores-a-place", "--train"};
  return !command.devices.empty() && command.train_flags.empty() &&
         std::ranges::none_of(measured, [&](std::string_view name) { return given.has(name); }) &&
         shipped_profile(command.model).has_value();
}

// What was measured is not measured again; to confirm a choice is to train it.
void check_profile_flags(const PlanCommand& command, const GivenFlags& given) {
  refuse_all(given, {"--measure-batches", "--measure-rounds", "--measure-minutes", "--save"},
      "is about what is measured, and --profile was; leave it out");
  if (command.confirmed > 0) return;
  refuse_all(given, {"--plugin", "--data", "--cores-a-place"},
      "says how to train, and --profile has been measured; leave it out, or add --confirm");
  check(command.train_flags.empty(),
      "plan: flags after -- are for what is trained, and --profile has been measured; leave them "
      "out, or add --confirm");
}

// What is said by name is said of devices that are asked about; a price, of each of them.
void check_device_flags(PlanCommand& command) {
  std::map<std::string, double>& rates = command.device_rates;
  check(rates.empty() || !command.devices.empty(), "plan: --device-rate is that of a --device");
  if (const auto alone = rates.find(""); alone != rates.end()) {
    check(command.devices.size() == 1, "plan: --device-rate is of one device; write DEVICE=RATE");
    rates = {{command.devices.front(), alone->second}};
  }
  for (const auto* numbers : {&rates, &command.device_prices})
    for (const auto& [name, number] : *numbers)
      check(std::ranges::find(command.devices, name) != command.devices.end(),
          "plan: --device does "
          "not name ",
          name, ", of which a rate or price is given");
  for (const std::string& name : command.devices)
    check(command.device_prices.empty() || command.device_prices.contains(name),
        "plan: --price has none of ", name);
  check(command.devices.empty() || command.confirmed == 0,
      "plan: --confirm trains on this machine, and --device is another; leave out one");
}

// What is predicted of PyTorch is trained by nobody here.
void check_peer(const PlanCommand& command) {
  if (!command.question.ways.settings.is_pytorch) return;
  const std::vector<std::string>& kinds = command.question.ways.kinds;
  check(kinds.empty() || std::ranges::find(kinds, "dp") != kinds.end(),
      "plan: --peer is for dp, and --ways does not name it");
  check(command.confirmed == 0 && !command.trains,
      "plan: --peer predicts what PyTorch would take, and --confirm and --train train without it; "
      "leave out one");
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
    const bool is_taken = std::ranges::any_of(
        kinds, [&](const std::string& kind) { return takes_flag(kind, each.flag); });
    check(is_taken || !given.has(each.flag), "plan: ", each.flag, " is for ", ways_with(each),
        ", and --ways names none of them");
  }
  const bool is_staged = std::ranges::any_of(
      kinds, [](const std::string& kind) { return takes_flag(kind, "--stages"); });
  check(is_staged || command.question.ways.settings.checkpoint != Checkpoint::kExceptLast,
      "plan: --checkpoint except-last is for stages, and --ways names none of them");
  const bool is_accumulated = std::ranges::any_of(
      kinds, [](const std::string& kind) { return !takes_flag(kind, "--stages"); });
  check(is_accumulated || !given.has("--grad-accum-steps"),
      "plan: --grad-accum-steps is for ways without stages, and --ways names none of them");
}

void check_training(const GivenFlags& given) {
  refuse_all(given,
      {"--model", "--plugin", "--data", "--precision", "--batch", "--batch-a-place", "--nodes",
          "--places", "--link", "--made-hosts"},
      "is not asked with --train, whose flags after -- say what is trained, on this machine");
}

void check_flags(PlanCommand& command, const GivenFlags& given) {
  if (command.trains) check_training(given);
  if (command.measures_only) check_measuring(given);
  if (!command.profile.empty()) check_profile_flags(command, given);
  check_device_flags(command);
  check_peer(command);
  check_failure_flags(command.question.failures, given);
  check_settings(command, given);
  check(command.output.empty() || command.output.ends_with(".html"),
      "plan: --output must be a file that ends in .html: ", command.output);
  plan::Question& question = command.question;
  // Only that there is one counts here: what is asked of a device gets its own.
  if (!command.device_prices.empty())
    question.machine.place_price = command.device_prices.begin()->second;
  plan::check_question(question);
  check(question.currency.empty() || question.machine.all_price() > 0,
      "plan: --currency is that of a --price");
  for (const std::string& text : command.scenarios) plan::changed(question, text);
}

void check_train_flags(const std::vector<std::string>& words) {
  const GivenFlags given = train_flags().parse(words);
  check(!given.asks_help, "plan: lockstep help train lists the flags that may follow --");
  TrainOptions options;
  train_flags().read(options, given);
}

using Words = std::vector<std::string>;

// The two that the fastest is taken from: a prediction of ways that are alike may be wrong.
constexpr int kConfirmed = 2;

// In which a net like ResNet50 is measured with its smallest batches.
constexpr double kMeasureMinutes = 4;

// What the choice decides.
constexpr std::array<std::string_view, 9> kDecided{"--parallel", "--places", "--nproc-per-node",
    "--batch-size", "--stages", "--schedule", "--chunks", "--balance", "--stages-per-place"};
// What a few steps are measured with is given by the plan itself; the rest changes no step, as
// does nothing that the launcher takes.
constexpr std::array<std::string_view, 19> kNotMeasured{"--model", "--data", "--precision",
    "--plugin", "--output", "--resume", "--epochs", "--max-steps", "--max-time", "--json",
    "--dry-run", "--profile", "--tensorboard", "--progress", "--snapshot-interval", "--keep",
    "--snapshot-copies", "--snapshot-required", "--eval-metric"};
// Ways of one process refuse them, and could not be compared.
constexpr std::array<const char*, 8> kOfReplicas{"--sync-batch-norm", "--shard-optimizer",
    "--comm-hook", "--bucket-mb", "--find-unused-parameters", "--backend", "--reshard",
    "--replicas"};

template <std::size_t Count>
bool is_among(const std::array<std::string_view, Count>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

int most_places(const GivenFlags& given) {
  for (const char* const flag : {"--places", "--nproc-per-node"}) {
    const auto text = given.find(flag);
    if (!text || *text == "auto" || *text == "cpu") continue;
    const auto number = parse_number<int>(*text);
    check(number && *number >= 1, "train: with --parallel auto ", flag,
        " must be a number of places: ", printable(*text));
    return *number;
  }
  return usable_cpu_count();
}

std::vector<int> up_to(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

// Asks about the training that the flags after -- describe, on this machine: its model, data,
// precision and batch, which is that of all replicas together, on up to `--places` or
// `--nproc-per-node` places, or else all cores. What is left of the flags is for measuring.
void plan_for_training(PlanCommand& command) {
  check(command.profile.empty() && command.devices.empty() && !command.measures_only,
      "plan: --train measures this machine: leave out --profile, --device and --measure");
  const GivenFlags given = train_flags().parse(command.train_flags);
  check_way_is_open(given);
  for (const char* const flag : kOfReplicas)
    check(!given.has(flag), "train: ", flag,
        " is for some ways only, and --parallel auto compares all: name the way, or leave it out");
  TrainOptions options;
  train_flags().read(options, given);
  command.model = given.find("--model").value_or(options.model);
  command.data =
      given.find("--data").value_or(train_flags().spec("--data").usual.value_or(command.data));
  command.precision = given.find("--precision").value_or(command.precision);
  command.plugin = given.find("--plugin").value_or("");
  command.question.batch = static_cast<double>(options.batch_size);
  command.question.nodes = {1};
  command.question.places = up_to(most_places(given));
  // fsdp saves memory, not time, and is not for every net that the others train.
  if (std::vector<std::string>& kinds = command.question.ways.kinds; kinds.empty()) {
    kinds = all_names<Parallel>();
    std::erase(kinds, name_of(Parallel::kFsdp));
  }
  command.confirmed = std::max(command.confirmed, kConfirmed);
  command.training =
      given.words_without([](const FlagSpec& flag) { return is_among(kDecided, flag.name); });
  command.train_flags = given.words_without([](const FlagSpec& flag) {
    return flag.is_for_launcher || is_among(kDecided, flag.name) ||
           is_among(kNotMeasured, flag.name);
  });
}

}  // namespace

std::vector<std::string> shipped_models() {
  std::vector<std::string> models;
  for (const ShippedProfile& each : kShippedProfiles) models.emplace_back(each.model);
  return models;
}

std::optional<std::string> shipped_profile(const std::string& model) {
  for (const ShippedProfile& each : kShippedProfiles)
    if (each.model == model) return each.text;
  return std::nullopt;
}

std::string plan_help() { return plan_table().help(); }

std::optional<PlanCommand> parse_plan(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  const GivenFlags given = plan_table().parse({arguments.begin(), end});
  if (given.asks_help) return std::nullopt;
  PlanCommand command;
  command.question.batch = 128;
  command.question.places = {1, 2};
  command.question.machine.between = plan::parse_link("10Gbit,50us");
  plan_table().read(command, given);
  if (end != arguments.end()) command.train_flags.assign(std::next(end), arguments.end());
  check_train_flags(command.train_flags);
  command.asked = "lockstep plan " + shell_text(arguments);
  command.takes_shipped = takes_shipped_profile(command, given);
  if (command.takes_shipped) command.profile = command.model;
  check_ways(command.question.ways.kinds);
  check_flags(command, given);
  if (!command.profile.empty()) {
    if (!given.has("--model")) command.model.clear();
    if (!given.has("--precision")) command.precision.clear();
    if (!given.has("--data")) command.data.clear();
    if (!given.has("--cores-a-place")) command.cores_a_place = 0;
  }
  if (command.trains) {
    plan_for_training(command);
    // What is measured is confirmed at once, and kept by nobody.
    if (!given.has("--measure-rounds")) command.measure_rounds = 1;
  }
  if (command.batches.empty()) {
    command.batches = halves_of(command.question.batch);
    if (!given.has("--measure-minutes")) command.measure_minutes = kMeasureMinutes;
  }
  if (command.measures_only && command.save.empty())
    command.save = "plan-" + file_name_of(command.model) + ".json";
  return command;
}

}  // namespace lockstep::cli
