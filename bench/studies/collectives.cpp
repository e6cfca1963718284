#include "bench/studies/collectives.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>

#include "bench/collectives/sweep.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::collectives {
namespace {

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;
using Sizes = std::vector<std::int64_t>;
using Style = plot::Series::Style;

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kLargestQuick = std::int64_t{64} << 20;
constexpr std::int64_t kLargestFull = std::int64_t{256} << 20;
constexpr int kFactor = 4;
constexpr int kQuickRounds = 2;
constexpr int kFullRounds = 6;       // the first number whose interval is sure with 95 %
constexpr double kQuickLimit = 120;  // seconds; a sample takes about two
constexpr double kFullLimit = 30.0 * 60;
constexpr double kGiga = 1e-9;
constexpr double kMicro = 1e6;
constexpr const char* kGloo = "gloo";  // what the others are compared with

/// A way of carrying collectives that the study compares.
struct Way {
  std::string name;   ///< of the setting `way`, and in files' names
  std::string title;  ///< in tables and figures
  Words flags;
};

const std::vector<Way>& ways() {
  // Gloo's thread shares the core of a rank that is pinned, which makes it slower: it is not
  // pinned.
  static const std::vector<Way> kWays{{"shm", "shm", {"--backend", "shm", "--memory", "group"}},
      {"shm-staged", "shm staged", {"--backend", "shm", "--memory", "ordinary"}},
      {"threads", "threads", {"--backend", "threads", "--memory", "group"}},
      {kGloo, "Gloo", {"--backend", "gloo", "--memory", "ordinary", "--no-pin"}}};
  return kWays;
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
  return {.id = concat(op, "-n", point.ranks, "-", point.way, "-", point.largest >> 20, "MiB"),
      .settings = {{"op", op}, {"ranks", concat(point.ranks)}, {"way", point.way},
          {"largest", concat(point.largest)}},
      .command = words_of("collectives", "--op", op, way->flags, "--nproc-per-node", point.ranks,
          "--min-bytes", kSmallest, "--max-bytes", point.largest, "--factor", kFactor),
      .places = point.ranks,
      // Gloo has a thread beside each rank, so no way is kept from cores that are free.
      .cores = options.cores};
}

SampleValues values_of(const Point& point, const std::filesystem::path& run) {
  SampleValues values;
  for (const SweepLine& line : read_sweep(run / kSweepFile)) {
    if (line.collective != point.collective) continue;
    values[seconds_value(line.bytes)] = line.median_seconds();
    values[copy_value(line.bytes)] = line.median_copy_seconds();
  }
  const Sizes sizes = point.sizes();
  for (const std::int64_t bytes : sizes) {
    if (values.contains(seconds_value(bytes))) continue;
    const std::string op = name_of(point.collective);
    throw DataError(concat(kSweepFile, ": has no result of ", op, " of ", bytes, " bytes"));
  }
  values["smallest_microseconds"] = values[seconds_value(sizes.front())] * 1e6;
  values["largest_milliseconds"] = values[seconds_value(sizes.back())] * 1e3;
  return values;
}

std::string size_text(std::int64_t bytes) {
  return plot::byte_texts({static_cast<double>(bytes)}).front();
}

/// One collective among one number of ranks, by every way.
struct Panel {
  Collective collective = Collective::kAllReduce;
  int ranks = 2;
  Sizes sizes = {};
  std::map<std::string, CellResult> ways = {};  ///< by the way's name

  /// Returns the way's cell; nullptr when the study has none.
  const CellResult* way(const std::string& name) const {
    const auto found = ways.find(name);
    return found == ways.end() ? nullptr : &found->second;
  }

  bool oversubscribed() const {
    return std::ranges::any_of(ways, [](const auto& each) { return each.second.oversubscribed; });
  }

  /// Estimates the seconds of a call.
  std::optional<Estimate> seconds(const std::string& name, std::int64_t bytes) const {
    const CellResult* const result = way(name);
    return result == nullptr ? std::nullopt : result->estimate(seconds_value(bytes));
  }

  /// Estimates how many times the way's time Gloo takes; nothing for Gloo.
  std::optional<Estimate> gloo_over(const std::string& name, std::int64_t bytes) const {
    const CellResult* const gloo = way(kGloo);
    const CellResult* const other = way(name);
    if (gloo == nullptr || other == nullptr || gloo == other) return std::nullopt;
    return ratio_of(*gloo, *other, seconds_value(bytes));
  }

  /// Returns the seconds that the least of reading and writing takes at the rate of a copy: the
  /// median over the copies that all the panel's runs made.
  std::optional<double> predicted_seconds(std::int64_t bytes) const {
    std::vector<double> copies;
    for (const auto& each : ways) {
      for (const auto& [round, seconds] : each.second.by_round(copy_value(bytes)))
        copies.push_back(seconds);
    }
    if (copies.empty()) return std::nullopt;
    return median(copies) * copy_share(collective, ranks);
  }

  /// Returns gigabytes a second times seconds: what a message counts for the bus bandwidth.
  double bus_gigabytes(std::int64_t bytes) const {
    return static_cast<double>(bytes) * kGiga * bus_factor(collective, ranks);
  }

  /// Returns what a reader must know of a row: what is odd about which way. What holds of all ways
  /// is said once. Empty if nothing.
  std::string note(std::int64_t bytes) const {
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

  std::string name() const { return concat(name_of(collective), " of ", ranks, " ranks"); }
};

std::vector<Panel> panels_of(const Cells& cells) {
  std::vector<Panel> panels;
  for (const Cell& cell : cells) {
    auto found = std::ranges::find_if(panels, [&](const Panel& each) {
      return each.collective == cell.collective && each.ranks == cell.ranks;
    });
    if (found == panels.end()) {
      found = panels.insert(found, {cell.collective, cell.ranks, cell.sizes()});
    }
    found->ways.emplace(cell.way, cell.result);
  }
  return panels;
}

// What is concluded.

/// The speed of a way as a multiple of Gloo's, by size.
struct AgainstGloo {
  Sizes sizes;
  Verdict verdict;

  Sizes sizes_where(bool (*holds)(const std::optional<Estimate>&)) const {
    Sizes found;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (holds(verdict.ratios[i])) found.push_back(sizes[i]);
    }
    return found;
  }
};

AgainstGloo against_gloo(const Panel& panel, const std::string& way) {
  AgainstGloo result;
  for (const std::int64_t bytes : panel.sizes) {
    const auto ratio = panel.gloo_over(way, bytes);
    if (ratio) result.sizes.push_back(bytes);
    result.verdict.add(ratio);
  }
  return result;
}

// `faster in every round at 1 (4 KiB)`
std::string sizes_text(const std::string& what, const Sizes& sizes, const std::string& of_all) {
  std::vector<std::string> list;
  for (const std::int64_t bytes : sizes) list.push_back(size_text(bytes));
  return concat(", ", what, " at ", sizes.size(), of_all,
      sizes.empty() ? "" : concat(" (", joined(list), ")"));
}

// Where it is not significantly faster, sizes are named; they are few or the point.
std::string verdict_by_size(const AgainstGloo& against) {
  const Verdict& verdict = against.verdict;
  if (!verdict.has_intervals()) return "";
  const Sizes faster = against.sizes_where(above_one), slower = against.sizes_where(below_one);
  const std::string of_all = concat(" of ", against.sizes.size(), " sizes");
  if (faster.size() == against.sizes.size())
    return concat(", ", verdict.sure("faster"), " at ", faster.size(), of_all);
  return sizes_text(verdict.sure("faster"), faster, of_all) +
         sizes_text(verdict.sure("slower"), slower, "");
}

// Empty for a way that cannot be compared.
std::string way_text(const Panel& panel, const Way& way) {
  const AgainstGloo against = against_gloo(panel, way.name);
  if (against.sizes.empty()) return "";
  return concat(panel.name(), ": ", way.title, " is ", range_text(against.verdict.ratios),
      " times as fast as Gloo", verdict_by_size(against), ".");
}

std::string microseconds(double seconds) { return seconds_text(seconds * kMicro); }

// The ends of the sweep: latency, and what is left of the rate of a copy.
std::string ends_text(const Panel& panel) {
  const std::int64_t small = panel.sizes.front(), large = panel.sizes.back();
  const auto first = panel.seconds("shm", small), gloo_first = panel.seconds(kGloo, small);
  const auto last = panel.seconds("shm", large), gloo_last = panel.seconds(kGloo, large);
  if (!first || !gloo_first || !last || !gloo_last) return "";
  const auto rate = [&](const Estimate& seconds) {
    return seconds_text(panel.bus_gigabytes(large) / seconds.median);
  };
  const auto predicted = panel.predicted_seconds(large);
  return concat(panel.name(), ": ", size_text(small), " takes shm ", microseconds(first->median),
      " µs and Gloo ", microseconds(gloo_first->median), " µs; ", size_text(large),
      " goes at a bus bandwidth of ", rate(*last), " and ", rate(*gloo_last), " GB/s",
      predicted ? concat(", shm in ", ratio_text(last->median / *predicted),
                      " times what a copy predicts")
                : "",
      ".");
}

bool is_fair(const Panel& panel) {
  const auto has_number = [&](const Way& way) {
    return way.name != kGloo && !against_gloo(panel, way.name).sizes.empty();
  };
  return !panel.oversubscribed() && first_where(ways(), has_number) != nullptr;
}

// Ranks that wait poll, and lose most where others take their cores.
std::string about_load(const Cells& cells) {
  constexpr double kQuiet = 0.1;
  std::vector<double> shares;
  for (const Cell& cell : cells) {
    for (const Sample& sample : cell.result.samples) {
      if (sample.worked() && std::isfinite(sample.other_share))
        shares.push_back(sample.other_share);
    }
  }
  if (shares.empty() || median(shares) < kQuiet) return "";
  return concat("Others used ", percent_text(median(shares)),
      " of the cores meanwhile (median), which affects these times more than the ways do: measure "
      "again on a quiet machine.");
}

// Answers at which sizes shared memory is faster than Gloo; only of ranks that had cores of their
// own.
page::Conclusion conclusion(const Cells& cells) {
  std::vector<std::string> answers, remarks;
  Verdict all;
  for (const Panel& panel : panels_of(cells)) {
    if (!is_fair(panel)) continue;
    for (const Way& way : ways()) {
      if (way.name == kGloo) continue;
      (way.name == "shm" ? answers : remarks).push_back(way_text(panel, way));
      for (const Estimate& ratio : against_gloo(panel, way.name).verdict.ratios) all.add(ratio);
    }
    remarks.push_back(ends_text(panel));
  }
  const std::string answer = in_one(answers);
  remarks.insert(remarks.end(),
      {all.explained(), about_load(cells), about_crowd(cells, &Cell::ranks, "ranks"),
          about_missing(results_of(cells)),
          "No figures of collectives were published by the studies, so ours stand beside Gloo's."});
  return {
      .answer =
          answer.empty()
              ? "No collective whose ranks had cores of their own has numbers of Gloo and of shm."
              : answer,
      .remarks = remarks};
}

// Tables.

/// A row: a panel and the size of a message; in the table of latencies also a way.
struct Row {
  const Panel* panel;
  std::int64_t bytes;
  const Way* way = nullptr;

  std::string op() const { return name_of(panel->collective); }
  int ranks() const { return panel->ranks; }
  std::string message() const { return size_text(bytes); }
  std::string note() const { return panel->note(bytes); }
  std::optional<Estimate> seconds() const { return panel->seconds(way->name, bytes); }
  std::optional<Estimate> ratio() const { return panel->gloo_over(way->name, bytes); }
};

std::vector<Row> rows_of(const std::vector<Panel>& panels) {
  std::vector<Row> rows;
  for (const Panel& panel : panels) {
    for (const std::int64_t bytes : panel.sizes) rows.push_back({&panel, bytes});
  }
  return rows;
}

// Three decimals would leave nothing of a small message's bandwidth.
std::string number_text(double value) {
  if (value >= 0.1 || value <= 0) return seconds_text(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

TableOf<Row> table_of(const char* what, const char* title) {
  TableOf<Row> table(std::string("collectives-") + what, title);
  return table.name("op", &Row::op).number("ranks", &Row::ranks).number("message", &Row::message);
}

// What stands in a table, of the seconds of a call.
using Shown = double (*)(const Row&, double seconds);

double shown_microseconds(const Row&, double seconds) { return seconds * kMicro; }

double algorithm_bandwidth(const Row& row, double seconds) {
  return static_cast<double>(row.bytes) / seconds * 1e-9;
}

double bus_bandwidth(const Row& row, double seconds) {
  return row.panel->bus_gigabytes(row.bytes) / seconds;
}

// A row for each size, a column for each way and for what a copy predicts.
page::Table table_by_ways(const std::vector<Panel>& panels, TableOf<Row> table,
    const std::string& unit, Shown shown, const std::vector<std::string>& notes) {
  for (const Way& way : ways()) {
    table.number(concat(way.title, " ", unit), [shown, way](const Row& row) {
      const auto seconds = row.panel->seconds(way.name, row.bytes);
      return seconds ? number_text(shown(row, seconds->median)) : kNone;
    });
  }
  const auto predicted = [shown](const Row& row) {
    const auto seconds = row.panel->predicted_seconds(row.bytes);
    return seconds ? number_text(shown(row, *seconds)) : kNone;
  };
  return table.number(concat("predicted ", unit), predicted)
      .name("note", &Row::note)
      .notes(notes)
      .of(rows_of(panels));
}

std::vector<std::string> explanations(const Cells& cells) {
  std::vector<std::string> notes{
      "medians over the rounds, of a round the median of its repeats; a repeat is some calls in a "
      "row, its time that of the slowest rank",
      "shm: tensors in the memory that the group gives, as DDP's buckets are; shm staged: any "
      "other tensor, copied through the group's; threads: ranks are threads of one process; Gloo "
      "over loopback, not pinned, which is best for it",
      "predicted: the least bytes that ranks with one memory must read and write, at the rate at "
      "which all of them copied as many bytes at once in the same run; it has no latency, so "
      "small messages cannot come near it; a copy may be slower than a sum that streams",
      "no study published figures of collectives, so there is no column of them",
      oversubscribed_note(any_oversubscribed(cells), "ranks")};
  for (const Panel& panel : panels_of(cells)) {
    std::vector<CellResult> results;
    for (const auto& each : panel.ways) results.push_back(each.second);
    for (const std::string& reason : whole_reasons(results)) notes.push_back(reason);
  }
  return notes;
}

page::Table ratio_table(const std::vector<Panel>& panels) {
  auto table = table_of("against-gloo", "How many times as fast as Gloo");
  for (const Way& way : ways()) {
    if (way.name == kGloo) continue;
    table.estimate(
        concat("Gloo / ", way.title), "interval",
        [&way](const Row& row) { return row.panel->gloo_over(way.name, row.bytes); }, ratio_text);
  }
  return table.name("note", &Row::note)
      .notes(
          {"Gloo's time by that of the way, from rounds that both have; no interval of one round"})
      .of(rows_of(panels));
}

std::string latency_note(const Row& row) {
  const std::string value = seconds_value(row.bytes);
  const std::string note = cell_note(*row.panel->way(row.way->name), value);
  if (row.way->name == kGloo) return noted({"what the others are compared with", note});
  const CellResult* const gloo = row.panel->way(kGloo);
  const bool lacks_gloo = row.seconds() && !row.ratio() && gloo != nullptr;
  return lacks_gloo ? concat("Gloo: ", cell_text(cell_note(*gloo, value))) : note;
}

page::Table latency_table(const std::vector<Panel>& panels) {
  std::vector<Row> rows;
  for (const Panel& panel : panels) {
    for (const Way& way : ways()) {
      if (panel.way(way.name) != nullptr) rows.push_back({&panel, panel.sizes.front(), &way});
    }
  }
  return table_of("latency", "Latency: the smallest message")
      .name("way", [](const Row& row) { return row.way->title; })
      .estimate("call [µs]", "interval [µs]", &Row::seconds, microseconds)
      .estimate("Gloo / it", "interval", &Row::ratio, ratio_text)
      .name("note", latency_note)
      .of(rows);
}

std::vector<page::Table> tables(const Cells& cells) {
  const std::vector<Panel> panels = panels_of(cells);
  return {table_by_ways(panels, table_of("time", "Time of a call"), "[µs]", shown_microseconds,
              explanations(cells)),
      ratio_table(panels), latency_table(panels),
      table_by_ways(panels, table_of("algorithm-bandwidth", "Algorithm bandwidth: message / time"),
          "[GB/s]", algorithm_bandwidth, {}),
      table_by_ways(panels, table_of("bus-bandwidth", "Bus bandwidth, as nccl-tests defines it"),
          "[GB/s]", bus_bandwidth,
          {"algorithm bandwidth times 2 (n - 1) / n for all_reduce of n ranks, (n - 1) / n for "
           "all_gather and reduce_scatter, 1 for broadcast"})};
}

// Figures of each panel over the size of the message, on logarithmic axes.

plot::Figure figure_of(const Panel& panel, const std::string& what, const std::string& title,
    const std::string& label) {
  int rounds = 0;
  for (const auto& each : panel.ways) {
    const auto seconds = each.second.estimate(seconds_value(panel.sizes.front()));
    rounds = std::max(rounds, seconds ? seconds->count : 0);
  }
  const char* over = panel.oversubscribed() ? " Oversubscribed: more ranks than cores." : "";
  return {.id = concat("collectives-", what, "-", name_of(panel.collective), "-n", panel.ranks),
      .title = concat(panel.name(), ": ", title),
      .x = {.label = "message", .logarithmic = true, .categories = {}, .bytes = true},
      .y = {.label = label, .logarithmic = true},
      .series = {},
      .note = medians_note(rounds) + over};
}

// Adds a line for each way: what a function makes of its name and a size.
template <class PointOf>
void add_ways(plot::Figure& figure, const Panel& panel, PointOf point) {
  for (const Way& way : ways()) {
    add_if_any(figure, series_of(way.title, Style::kLine, panel.sizes,
                           [&](std::int64_t bytes) { return point(way.name, bytes); }));
  }
}

template <class Value>
void add_predicted(plot::Figure& figure, const Panel& panel, Value value) {
  const auto point = [&](std::int64_t bytes) -> std::optional<plot::Point> {
    const auto seconds = panel.predicted_seconds(bytes);
    if (!seconds) return std::nullopt;
    return plot::Point{static_cast<double>(bytes), value(bytes, *seconds)};
  };
  add_if_any(figure, series_of("predicted by a copy", Style::kDashed, panel.sizes, point));
}

plot::Figure time_figure(const Panel& panel) {
  plot::Figure figure = figure_of(panel, "time", "time of a call", "call [µs]");
  add_ways(figure, panel, [&](const std::string& way, std::int64_t bytes) {
    return point_of(static_cast<double>(bytes), panel.seconds(way, bytes), kMicro);
  });
  add_predicted(figure, panel, [](std::int64_t, double seconds) { return seconds * kMicro; });
  return figure;
}

plot::Figure bus_figure(const Panel& panel) {
  plot::Figure figure = figure_of(panel, "bus", "bus bandwidth", "bus bandwidth [GB/s]");
  const auto rate = [&](std::int64_t bytes, double seconds) {
    return panel.bus_gigabytes(bytes) / seconds;
  };
  add_ways(figure, panel, [&](const std::string& way, std::int64_t bytes) {
    auto point = point_of(static_cast<double>(bytes), panel.seconds(way, bytes));
    if (!point) return point;
    point->y = rate(bytes, point->y);
    if (!point->low) return point;
    // The longest time is the least bandwidth.
    std::swap(point->low, point->high);
    for (auto* end : {&point->low, &point->high}) *end = rate(bytes, **end);
    return point;
  });
  add_predicted(figure, panel, rate);
  return figure;
}

plot::Figure gloo_figure(const Panel& panel) {
  plot::Figure figure =
      figure_of(panel, "against-gloo", "how many times as fast as Gloo", "Gloo's time / time");
  add_ways(figure, panel, [&](const std::string& way, std::int64_t bytes) {
    return point_of(static_cast<double>(bytes), panel.gloo_over(way, bytes));
  });
  if (figure.series.empty()) return figure;
  const auto first = static_cast<double>(panel.sizes.front());
  const auto last = static_cast<double>(panel.sizes.back());
  figure.series.push_back({"as fast as Gloo", {{first, 1}, {last, 1}}, Style::kDashed});
  return figure;
}

std::vector<plot::Figure> figures(const Cells& cells) {
  std::vector<plot::Figure> all;
  for (const Panel& panel : panels_of(cells)) {
    for (const auto& make : {time_figure, bus_figure, gloo_figure}) all.push_back(make(panel));
  }
  return all;
}

}  // namespace

Sizes Point::sizes() const {
  Sizes sizes;
  for (std::int64_t bytes = kSmallest; bytes <= largest; bytes *= kFactor) sizes.push_back(bytes);
  return sizes;
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

std::string seconds_value(std::int64_t bytes) { return concat("seconds_", bytes); }

std::string copy_value(std::int64_t bytes) { return concat("copy_seconds_", bytes); }

}  // namespace lockstep::bench::collectives
