#include "bench/cli/bench_flags.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "bench/studies/bench_request.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep::cli {
namespace {

using bench::StudyOptions;
using bench::WaysRequest;
using C = BenchCommand;
using R = bench::BenchRequest;

constexpr double kUsualBudget = 10.0 * 60;

std::vector<int> whole_numbers(const FlagSpec& flag, const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& item : split(text, ',')) {
    const auto number = parse_number<int>(item);
    check(number && *number >= flag.least && *number <= flag.most, flag.verb, ": ", flag.name,
        " must be whole numbers from ", static_cast<std::int64_t>(flag.least), " to ",
        static_cast<std::int64_t>(flag.most), ", separated by commas: ", text);
    numbers.push_back(*number);
  }
  return numbers;
}

const FlagSpec& of_train(const char* name) { return train_flags().spec(name); }

Flag<C> numbers_flag(const char* name, const char* help, std::vector<int> WaysRequest::*member,
    const char* usual, const char* as_train) {
  return flag_by<C>(name, "N,...", help,
      [member](C& command, const FlagSpec& flag, const std::string& text) {
        command.request.options.ways.*member = whole_numbers(flag, text);
      })
      .from(1)
      .to(of_train(as_train).most)
      .usually(usual);
}

template <typename Member>
Flag<C> grid_flag(const char* name, const char* value, const char* help, Member member) {
  return flag(name, value, help, &C::request, &R::options, &StudyOptions::ways, member);
}

template <typename Value>
void check_once(const char* name, const std::vector<Value>& values) {
  const std::set<Value> once(values.begin(), values.end());
  check(once.size() == values.size(), "bench: ", name, " names something twice");
}

void check_grid(const WaysRequest& ways) {
  check_once("--batch", ways.batches);
  check_once("--ways", ways.ways);
  check_once("--precision", ways.precisions);
  check_once("--schedule", ways.schedules);
}

/// A flag of `lockstep train` that the bench gives, and what a user can give for it.
struct OwnFlag {
  const char* name;
  const char* instead;
};
constexpr const char* kItself = "the bench sets it itself";
constexpr OwnFlag kOwnFlags[] = {{"--model", "give it before --"},
    {"--plugin", "give it before --"}, {"--data", "give it before --"},
    {"--device", "give it before --"}, {"--precision", "give it before --"},
    {"--schedule", "give it before --"}, {"--places", "give it before --"},
    {"--nproc-per-node", "give --places before --"}, {"--batch-size", "give --batch before --"},
    {"--parallel", "give --ways before --"}, {"--stages", kItself}, {"--epochs", kItself},
    {"--max-steps", kItself}, {"--max-time", kItself}, {"--log-interval", kItself},
    {"--val-interval", kItself}, {"--snapshot-interval", kItself}, {"--snapshot-overhead", kItself},
    {"--resume", kItself}, {"--max-restarts", kItself}, {"--progress", kItself},
    {"--output", kItself}, {"--log-dir", kItself}, {"--dry-run", kItself}, {"--json", kItself}};

// In one form, however they were written.
std::vector<std::string> words_of_flag(const GivenFlag& given) {
  const std::string& name = given.spec->name;
  for (const OwnFlag& own : kOwnFlags)
    check(name != own.name, "bench: ", name, " cannot follow --: ", own.instead);
  if (!given.spec->takes_value()) return {name};
  if (name != "--pretrained") return {name, given.value};
  // A bench may be continued from another folder than it was begun in.
  return {name, std::filesystem::absolute(given.value).lexically_normal().string()};
}

bool is_ways(const BenchCommand& command) {
  const auto& studies = command.request.studies;
  return studies.size() == 1 && bench::find_study(studies.front())->is_of_user();
}

/// Returns the flags of the grid of `lockstep bench ways`.
FlagGroup<BenchCommand> ways_flags() {
  return {"The grid of ways",
      {grid_flag("--model", "NAME", "model, as for lockstep train", &WaysRequest::model),
          grid_flag(
              "--plugin", "FILE", "shared library with models of your own", &WaysRequest::plugin)
              .usually("none"),
          numbers_flag("--batch", "samples per step on all places together, one or several",
              &WaysRequest::batches, "128", "--batch-size"),
          numbers_flag("--places", "places to spread over", &WaysRequest::places,
              "1, 2 and 4, as far as there are cores", "--places"),
          grid_flag("--ways", "WAY,...", "one or several: {}", &WaysRequest::ways)
              .one_of(of_train("--parallel").words),
          grid_flag("--precision", "P,...", "one or several: {}", &WaysRequest::precisions)
              .one_of(of_train("--precision").words),
          grid_flag("--schedule", "NAME,...", "of pp and ddp+pp, one or several: {}",
              &WaysRequest::schedules)
              .one_of(of_train("--schedule").words)
              .usually("1f1b")}};
}

void refuse_grid_flags(const GivenFlags& given) {
  const FlagGroup<C> grid = ways_flags();
  for (const auto& each : grid.flags)
    check(!given.has(each.spec.name), "bench: ", each.spec.name,
        " is for lockstep bench ways, whose grid is yours; the other studies have their own");
}

void check_schedules(const WaysRequest& ways) {
  const auto has = [&](const char* way) {
    return std::ranges::find(ways.ways, way) != ways.ways.end();
  };
  check(ways.schedules.empty() || has("pp") || has("ddp+pp"), "bench: --schedule ",
      joined(ways.schedules, ","), " is for pp and ddp+pp, which are not among --ways ",
      joined(ways.ways, ","));
}

/// Takes the words after `--`, which go to each `lockstep train`, as far as they are its flags,
/// with values that it takes, and not those that the bench itself gives. Throws InvalidArgument
/// that names the flag.
void take_train_flags(BenchCommand& command, const std::vector<std::string>& words) {
  if (words.empty()) return;
  check(is_ways(command),
      "bench: flags after -- are for lockstep bench "
      "ways; the other studies train as they say");
  const GivenFlags given = train_flags().parse(words);
  check(!given.asks_help, "bench: lockstep help train lists the flags that may follow --");
  TrainOptions options;
  train_flags().read(options, given);
  train_flags().check_ranges(options);
  for (const GivenFlag& each : given.flags) {
    const auto more = words_of_flag(each);
    auto& all = command.request.options.ways.train_flags;
    all.insert(all.end(), more.begin(), more.end());
  }
}

/// Makes the request for that study whole; for another one none of its flags may have been given.
/// Throws InvalidArgument that names the flag.
void resolve_ways(BenchCommand& command, const GivenFlags& given) {
  if (!is_ways(command)) return refuse_grid_flags(given);
  StudyOptions& options = command.request.options;
  check(!command.quick && !options.full,
      "bench: ways has no --quick and no --full: its grid is "
      "what --batch, --places, --ways, --precision and --schedule say");
  check(options.data.size() < 2, "bench: ways takes one --data");
  if (options.data.empty()) options.data.emplace_back(bench::kUsualWaysData);
  check(options.device.find(',') == std::string::npos,
      "bench: ways takes one --device: ", options.device);
  check(options.nodes.empty(), "bench: ways spreads over this machine alone; --nodes ",
      joined(options.nodes, ","), " is for ddp-scaling and scale-out");
  check_grid(options.ways);
  check_schedules(options.ways);
  std::string& plugin = options.ways.plugin;
  if (!plugin.empty()) plugin = std::filesystem::absolute(plugin).lexically_normal().string();
  if (!given.has("--budget")) command.budget = kUsualBudget;
  command.request.make();  // a grid without a cell
}

constexpr const char* kBenchDescription =
    R"(Measures a study: which way of distributing a training is fastest on this machine.

Each cell of the study's grid is a run of lockstep train. A round runs every cell once, in random order, so that a
disturbance of the machine does not affect a single cell. A cell that fails is shown with its reason, and the
others are still measured. A bench may be stopped at any time; the same command with the same --output continues it.
)";

constexpr const char* kBenchExamples = R"(Examples:
  lockstep bench --list                             the studies
  lockstep bench data-parallel --list               its cells and their commands; measures nothing
  lockstep bench data-parallel                      about two minutes on two cores
  lockstep bench data-parallel --full --output dp   the whole grid: hours to a day; may be stopped
  lockstep bench data-parallel --full --output dp   ... and continued
  lockstep bench ways --model resnet18 --batch 64,128 --budget 30m
                                                    which way is the fastest for this model here
  lockstep bench ways --model vgg11 -- --opt sgd --image-size 64
                                                    ... if each lockstep train has these flags, too
  lockstep report dp                                tables and figures again, from dp/samples.jsonl

The folder then holds report.html (one file, for a browser), report.md, figures/*.svg, samples.jsonl and
environment.json; data-parallel also writes pytorch_results.txt, in the format of the study that it repeats.

Exit codes: 0 done, 1 a cell failed, 2 bad flags, 3 bad data, 4 disk, 128+n stopped by signal n: run it again.)";

const FlagTable<BenchCommand>& bench_table() {
  using S = bench::StudyOptions;
  static const FlagTable<C> kTable(
      {.verb = "bench",
          .usage = "lockstep bench STUDY [flags], or lockstep bench --list, or\n"
                   "       lockstep bench ways [flags] [-- flags of lockstep train]",
          .description = kBenchDescription,
          .footer = kBenchExamples},
      {{"Arguments", {flag("STUDY", "", "a study's name, or all", &C::name)}},
          {"Options",
              {flag_on("--quick", "a reduced grid, which takes minutes [default]", &C::quick),
                  flag_on(
                      "--full", "the whole grid of the study", &C::request, &R::options, &S::full),
                  flag("--output", "DIR",
                      "folder for samples and report; an existing bench folder is continued",
                      &C::output)
                      .usually("bench-STUDY-TIME"),
                  flag("--rounds", "N", "samples per cell", &C::request, &R::options, &S::rounds)
                      .from(1)
                      .to(1000)
                      .usually("3; with --quick fewer of slow cells; ways: until it is sure"),
                  flag_by<C>("--budget", "TIME",
                      "begin no further sample after this time: 10m, 2h; more time is more work a "
                      "sample",
                      [](C& command, const FlagSpec&, const std::string& text) {
                        command.budget = parse_duration(text);
                      })
                      .usually("ways 10m, others none"),
                  flag("--data", "NAME[:DIR]",
                      "data set for the studies that take one; may be repeated", &C::request,
                      &R::options, &S::data)
                      .repeated()
                      .usually("each its own"),
                  flag("--device", "TYPE,...",
                      "device types to train on, as for lockstep train: cpu, cuda, or several",
                      &C::request, &R::options, &S::device)
                      .usually("what lockstep train chooses"),
                  flag("--nodes", "HOST,HOST,...", "hosts for multi-node studies", &C::request,
                      &R::options, &S::nodes)
                      .usually("network namespaces of this machine"),
                  flag("--pretrained", "FILE", "with --full: initial weights of scale-out's VGG19",
                      &C::request, &R::options, &S::pretrained)
                      .usually("random ones"),
                  flag("--seed", "N", "seed of the order of cells in a round", &C::seed),
                  flag_on("--keep-runs", "keep the folder of each run", &C::keep_runs),
                  flag_on("--retry-failed", "measure failed samples again", &C::retry_failed),
                  flag_on("--list", "list studies, or the cells of one; measure nothing", &C::list),
                  flag_on("--json", "end stdout with all estimates as one JSON object", &C::json)}},
          ways_flags()});
  return kTable;
}

std::vector<std::string> studies_of(const std::string& name) {
  if (bench::find_study(name) != nullptr) return {name};
  std::vector<std::string> own, known;
  for (const auto& entry : bench::study_catalogue()) {
    known.push_back(entry.name);
    if (!entry.is_of_user()) own.push_back(entry.name);
  }
  if (name == "all") return own;
  known.emplace_back("all");
  throw InvalidArgument(concat("bench: there is no study ", name, did_you_mean(name, known),
      " (lockstep bench --list lists all)"));
}

std::string default_output(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return concat("bench-", name, "-", text);
}

// A bench may be continued from another folder than it was begun in.
std::string with_absolute_folder(const std::string& data) {
  const auto colon = data.find(':');
  if (colon == std::string::npos || colon + 1 == data.size()) return data;
  const auto folder = std::filesystem::absolute(data.substr(colon + 1)).lexically_normal();
  return data.substr(0, colon + 1) + folder.string();
}

void check_taken(const std::string& data, const std::vector<std::string>& studies) {
  std::vector<std::string> known;
  for (const std::string& study : studies) {
    if (bench::find_study(study)->is_of_user()) return;
    const auto& names = bench::find_study(study)->data;
    known.insert(known.end(), names.begin(), names.end());
  }
  const std::string name = bench::data_name(data);
  check(std::ranges::find(known, name) != known.end(), "bench: --data: ", name, " is not a set of ",
      studies.size() == 1 ? studies.front() : "these studies", did_you_mean(name, known));
}

bool any_study(const bench::BenchRequest& request, bool (*holds)(const bench::StudyEntry& study)) {
  return std::ranges::any_of(
      request.studies, [&](const std::string& study) { return holds(*bench::find_study(study)); });
}

// The quick grid trains another net, which such a file does not fit.
void resolve_pretrained(bench::BenchRequest& request) {
  std::string& file = request.options.pretrained;
  if (file.empty()) return;
  const bool taken = any_study(request, [](const auto& study) { return study.takes_pretrained; });
  check(taken, "bench: --pretrained is for scale-out, not for ", request.studies.front());
  check(request.options.full, "bench: --pretrained is VGG19's, which only --full trains: ", file);
  file = std::filesystem::absolute(file).lexically_normal().string();
}

void check_nodes(const bench::BenchRequest& request) {
  const bool taken = any_study(request, [](const auto& study) {
    return study.takes_nodes || study.is_of_user();  // which says why it has none
  });
  check(taken || request.options.nodes.empty(),
      "bench: --nodes is for studies of several nodes, not for ", joined(request.studies, ","));
}

// What a list does not show would be ignored.
void check_list(const BenchCommand& command, const GivenFlags& given) {
  if (!command.list) return;
  for (const GivenFlag& flag : given.flags) {
    const std::string& name = flag.spec->name;
    const bool is_own = name == "--list" ||
                        (!command.name.empty() && name != "--json" && name != "--output" &&
                            name != "--keep-runs" && name != "--retry-failed" && name != "--seed");
    check(is_own, "bench: --list measures nothing; leave out ", name);
  }
}

void check_devices(const bench::BenchRequest& request) {
  const bool trains = any_study(request, [](const auto& study) { return study.trains; });
  check(trains || request.studies.empty(), "bench: --device is for studies that train, not for ",
      joined(request.studies, ","));
  const std::vector<std::string> devices = split(request.options.device, ',');
  for (const std::string& device : devices)
    check(!device.empty() && std::ranges::count(devices, device) == 1,
        "bench: --device names each type once: ", request.options.device);
}

void resolve_bench(
    BenchCommand& command, const GivenFlags& given, const std::vector<std::string>& for_train) {
  auto& options = command.request.options;
  check(!command.quick || !options.full, "bench: --quick and --full exclude each other");
  check(!command.name.empty() || command.list,
      "bench: name a study, or all (lockstep bench --list lists them)");
  check_list(command, given);
  if (!command.name.empty()) command.request.studies = studies_of(command.name);
  options.cores = usable_cpu_count();
  options.gpus = launch::gpu_count();
  for (std::string& data : options.data) {
    check_taken(data, command.request.studies);
    data = with_absolute_folder(data);
  }
  if (!command.name.empty()) {
    check_nodes(command.request);
    resolve_pretrained(command.request);
    take_train_flags(command, for_train);
    resolve_ways(command, given);
  }
  command.is_fitted = command.budget > 0 && bench::fit_to_budget(command.request, command.budget);
  if (!options.device.empty()) check_devices(command.request);
  if (command.output.empty()) command.output = default_output(command.name);
}

}  // namespace

std::string bench_help() { return bench_table().help(); }

std::optional<BenchCommand> parse_bench(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  const GivenFlags given = bench_table().parse({arguments.begin(), end});
  if (given.asks_help) return std::nullopt;
  BenchCommand command;
  bench_table().read(command, given);
  resolve_bench(command, given, {end == arguments.end() ? end : end + 1, arguments.end()});
  return command;
}

}  // namespace lockstep::cli
