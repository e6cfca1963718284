#include "lockstep/cli/bench/ways_flags.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>

#include "lockstep/bench/studies/catalogue.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
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

void refuse_grid_flags(const GivenFlags& given) {
  const FlagGroup<C> grid = ways_flags();
  for (const auto& each : grid.flags)
    check(!given.has(each.spec.name), "bench: ", each.spec.name,
        " is for lockstep bench ways, whose grid is yours; the other studies have their own");
}

void check_schedules(const WaysRequest& ways) {
  const auto has = [&](const char* way) {
    return std::find(ways.ways.begin(), ways.ways.end(), way) != ways.ways.end();
  };
  check(ways.schedules.empty() || has("pp") || has("ddp+pp"), "bench: --schedule ",
      joined(ways.schedules, ","), " is for pp and ddp+pp, which are not among --ways ",
      joined(ways.ways, ","));
}

}  // namespace

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

}  // namespace lockstep::cli
