#include <algorithm>

#include "bench/collectives/sweep_line.h"
#include "bench/studies/collectives/study.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::collectives {
namespace {

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kLargestQuick = std::int64_t{64} << 20;
constexpr std::int64_t kLargestFull = std::int64_t{256} << 20;
constexpr int kFactor = 4;
constexpr int kQuickRounds = 2;
constexpr int kFullRounds = 6;       // the first number whose interval is sure with 95 %
constexpr double kQuickLimit = 120;  // seconds; a sample takes about two
constexpr double kFullLimit = 30.0 * 60;
constexpr double kGiga = 1e-9;

SampleValues values_of(const Point& point, const std::filesystem::path& run) {
  SampleValues values;
  for (const SweepLine& line : read_sweep(run / kSweepFile)) {
    if (line.collective != point.collective) continue;
    values[seconds_value(line.bytes)] = line.median_seconds();
    values[copy_value(line.bytes)] = line.median_copy_seconds();
  }
  const auto sizes = point.sizes();
  for (const std::int64_t bytes : sizes) {
    if (values.contains(seconds_value(bytes))) continue;
    const std::string op = name_of(point.collective);
    throw DataError(concat(kSweepFile, ": has no result of ", op, " of ", bytes, " bytes"));
  }
  values["smallest_microseconds"] = values[seconds_value(sizes.front())] * 1e6;
  values["largest_milliseconds"] = values[seconds_value(sizes.back())] * 1e3;
  return values;
}

}  // namespace

const std::vector<Way>& ways() {
  // Gloo's thread shares the core of a rank that is pinned, which makes it slower: it is not
  // pinned.
  static const std::vector<Way> kWays{{"shm", "shm", {"--backend", "shm", "--memory", "group"}},
      {"shm-staged", "shm staged", {"--backend", "shm", "--memory", "ordinary"}},
      {"threads", "threads", {"--backend", "threads", "--memory", "group"}},
      {kGloo, "Gloo", {"--backend", "gloo", "--memory", "ordinary", "--no-pin"}}};
  return kWays;
}

std::vector<std::int64_t> Point::sizes() const {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = kSmallest; bytes <= largest; bytes *= kFactor) sizes.push_back(bytes);
  return sizes;
}

std::vector<Point> grid(bool full) {
  std::vector<Collective> all{Collective::kAllReduce, Collective::kBroadcast};
  if (full) all.insert(all.end(), {Collective::kAllGather, Collective::kReduceScatter});
  std::vector<Point> points;
  for (const Collective collective : all) {
    for (int ranks = 2; ranks <= (full ? 8 : 2); ranks *= 2) {
      for (const Way& way : ways()) {
        points.push_back({collective, way.name, ranks, full ? kLargestFull : kLargestQuick});
      }
    }
  }
  return points;
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const std::string op = name_of(point.collective);
  const Way* way = first_where(ways(), [&](const Way& each) { return each.name == point.way; });
  check(way != nullptr, "collectives: no way ", point.way);
  return {.id = concat(op, "-n", point.ranks, "-", point.way, "-", point.largest >> 20, "MiB"),
      .settings = {{"op", op}, {"ranks", concat(point.ranks)}, {"way", point.way},
          {"largest", concat(point.largest)}},
      .command = words_of("collectives", "--op", op, way->flags, "--nproc-per-node", point.ranks,
          "--min-bytes", kSmallest, "--max-bytes", point.largest, "--factor", kFactor),
      .places = point.ranks,
      // Gloo has a thread beside each rank, so no way is kept from cores that are free.
      .cores = options.cores,
      .environment = {},
      .rounds = 0,
      .not_measurable = ""};
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "collectives",
      .title = "Collectives: shared memory and threads against Gloo",
      .question =
          "At which sizes of a message are collectives over shared memory faster than over Gloo, "
          "and how near do they come to the rate of a copy?",
      .rounds = options.rounds_or(options.full ? kFullRounds : kQuickRounds),
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .grid = grid(options.full),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values = values_of,
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{"smallest_microseconds", "smallest [µs]"},
          {"largest_milliseconds", "largest [ms]"}}}
      .make();
}

const CellResult* Panel::way(const std::string& name) const {
  const auto found = ways.find(name);
  return found == ways.end() ? nullptr : &found->second;
}

bool Panel::oversubscribed() const {
  return std::any_of(
      ways.begin(), ways.end(), [](const auto& each) { return each.second.oversubscribed; });
}

std::optional<Estimate> Panel::seconds(const std::string& name, std::int64_t bytes) const {
  const CellResult* const result = way(name);
  return result == nullptr ? std::nullopt : result->estimate(seconds_value(bytes));
}

std::optional<Estimate> Panel::gloo_over(const std::string& name, std::int64_t bytes) const {
  const CellResult* const gloo = way(kGloo);
  const CellResult* const other = way(name);
  if (gloo == nullptr || other == nullptr || gloo == other) return std::nullopt;
  return ratio_of(*gloo, *other, seconds_value(bytes));
}

std::optional<double> Panel::predicted_seconds(std::int64_t bytes) const {
  std::vector<double> copies;
  for (const auto& each : ways) {
    for (const auto& [round, seconds] : each.second.by_round(copy_value(bytes))) {
      copies.push_back(seconds);
    }
  }
  if (copies.empty()) return std::nullopt;
  return median(copies) * copy_share(collective, ranks);
}

double Panel::bus_gigabytes(std::int64_t bytes) const {
  return static_cast<double>(bytes) * kGiga * bus_factor(collective, ranks);
}

// What holds of all ways is said once.
std::string Panel::note(std::int64_t bytes) const {
  std::vector<std::string> notes;                          // in the order of the ways
  std::map<std::string, std::vector<std::string>> titles;  // of the ways that a note is about
  for (const Way& each : collectives::ways()) {
    const CellResult* const result = way(each.name);
    const std::string text = result == nullptr ? "" : cell_note(*result, seconds_value(bytes));
    if (text.empty()) continue;
    if (titles[text].empty()) notes.push_back(text);
    titles[text].push_back(each.title);
  }
  for (std::string& text : notes) {
    const auto& whose = titles[text];
    if (whose.size() < ways.size()) text = concat(joined(whose), ": ", text);
  }
  return noted(notes);
}

std::string Panel::name() const { return concat(name_of(collective), " of ", ranks, " ranks"); }

std::string seconds_value(std::int64_t bytes) { return concat("seconds_", bytes); }

std::string copy_value(std::int64_t bytes) { return concat("copy_seconds_", bytes); }

std::vector<Panel> panels_of(const Cells& cells) {
  std::vector<Panel> panels;
  for (const Cell& cell : cells) {
    auto found = std::find_if(panels.begin(), panels.end(), [&](const Panel& each) {
      return each.collective == cell.collective && each.ranks == cell.ranks;
    });
    if (found == panels.end()) {
      found = panels.insert(found, {cell.collective, cell.ranks, cell.sizes()});
    }
    found->ways.emplace(cell.way, cell.result);
  }
  return panels;
}

std::string size_text(std::int64_t bytes) {
  return plot::byte_texts({static_cast<double>(bytes)}).front();
}

}  // namespace lockstep::bench::collectives
