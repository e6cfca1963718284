#include "lockstep/cli/bench/ways_flags.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/bench/studies/catalogue.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using bench::StudyOptions;
using bench::WaysRequest;
using C = BenchCommand;
using R = bench::BenchRequest;

constexpr double kUsualBudget = 10.0 * 60;

std::vector<int> whole_numbers(const FlagSpec& flag, const std::string& text) {
  FlagSpec each = flag;
  each.kind = FlagSpec::Kind::kWhole;
  each.least = 1;
  std::vector<int> numbers;
  for (const std::string& item : split(text, ',')) {
    numbers.push_back(static_cast<int>(each.whole_number(item, 1, 1 << 30)));
  }
  return numbers;
}

Flag<C> numbers_flag(
    const char* name, const char* help, std::vector<int> WaysRequest::*member, const char* usual) {
  return flag_by<C>(name, "N,...", help,
      [member](C& command, const FlagSpec& flag, const std::string& text) {
        command.request.options.ways.*member = whole_numbers(flag, text);
      })
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

}  // namespace

FlagGroup<BenchCommand> ways_flags() {
  return {"The grid of ways",
      {grid_flag("--model", "NAME", "model, as for lockstep train", &WaysRequest::model),
          grid_flag(
              "--plugin", "FILE", "shared library with models of your own", &WaysRequest::plugin)
              .usually("none"),
          numbers_flag("--batch", "samples per step on all places together, one or several",
              &WaysRequest::batches, "128"),
          numbers_flag("--places", "places to spread over", &WaysRequest::places,
              "1, 2 and 4, as far as there are cores"),
          grid_flag("--ways", "WAY,...", "one or several: {}", &WaysRequest::ways)
              .one_of({"serial", "dp", "ddp", "mp", "pp"}),
          grid_flag("--precision", "P,...", "precisions, as for lockstep train",
              &WaysRequest::precisions),
          grid_flag("--schedule", "NAME,...", "schedules of pp, as for lockstep train",
              &WaysRequest::schedules)
              .usually("1f1b")}};
}

void resolve_ways(BenchCommand& command, const GivenFlags& given) {
  if (!is_ways(command)) return refuse_grid_flags(given);
  StudyOptions& options = command.request.options;
  check(!command.quick && !options.full,
      "bench: ways has no --quick and no --full: its grid is "
      "what --batch, --places, --ways, --precision and --schedule say");
  check(options.data.size() < 2, "bench: ways takes one --data");
  check(options.device.find(',') == std::string::npos,
      "bench: ways takes one --device: ", options.device);
  check_grid(options.ways);
  std::string& plugin = options.ways.plugin;
  if (!plugin.empty()) plugin = std::filesystem::absolute(plugin).lexically_normal().string();
  if (!given.has("--budget")) command.budget = kUsualBudget;
  command.request.make();  // a grid without a cell
}

}  // namespace lockstep::cli
