#include <cstdio>
#include <functional>

#include "bench/studies/collectives/study.h"
#include "bench/study/figure_of.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::collectives {
namespace {

using Style = plot::Series::Style;
using Panels = std::vector<Panel>;

constexpr double kMicro = 1e6;

/// A row of most tables: a panel and the size of a message.
struct Row {
  const Panel* panel;
  std::int64_t bytes;

  std::string op() const { return name_of(panel->collective); }
  int ranks() const { return panel->ranks; }
  std::string message() const { return size_text(bytes); }
  std::string note() const { return panel->note(bytes); }
};

/// A row of the table of latencies.
struct WayRow : Row {
  const Way* way;

  std::optional<Estimate> seconds() const { return panel->seconds(way->name, bytes); }
  std::optional<Estimate> ratio() const { return panel->gloo_over(way->name, bytes); }
};

std::vector<Row> rows_of(const Panels& panels) {
  std::vector<Row> rows;
  for (const Panel& panel : panels) {
    for (const std::int64_t bytes : panel.sizes) rows.push_back({&panel, bytes});
  }
  return rows;
}

std::vector<const Way*> others() {
  return select(ways(), [](const Way& way) { return way.name != kGloo; });
}

std::string microseconds(double seconds) { return seconds_text(seconds * kMicro); }

// Three decimals would leave nothing of a small message's bandwidth.
std::string number_text(double value) {
  if (value >= 0.1 || value <= 0) return seconds_text(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

template <class AnyRow = Row>
TableOf<AnyRow> table_of(const char* what, const char* title) {
  TableOf<AnyRow> table(std::string("collectives-") + what, title);
  return table.name("op", &AnyRow::op)
      .number("ranks", &AnyRow::ranks)
      .number("message", &AnyRow::message);
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
page::Table table_by_ways(const Panels& panels, TableOf<Row> table, const std::string& unit,
    Shown shown, const std::vector<std::string>& notes) {
  const auto value = [shown](const Row& row, const std::optional<double>& seconds) {
    return seconds ? number_text(shown(row, *seconds)) : kNone;
  };
  for (const Way& way : ways()) {
    table.number(concat(way.title, " ", unit), [value, way](const Row& row) {
      const auto seconds = row.panel->seconds(way.name, row.bytes);
      return value(row, seconds ? std::optional(seconds->median) : std::nullopt);
    });
  }
  return table
      .number(concat("predicted ", unit),
          [value](const Row& row) { return value(row, row.panel->predicted_seconds(row.bytes)); })
      .name("note", &Row::note)
      .notes(notes)
      .of(rows_of(panels));
}

std::vector<std::string> explanations(const Panels& panels) {
  const bool over =
      first_where(panels, [](const Panel& panel) { return panel.oversubscribed(); }) != nullptr;
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
      oversubscribed_note(over, "ranks")};
  for (const Panel& panel : panels) {
    std::vector<CellResult> results;
    for (const auto& each : panel.ways) results.push_back(each.second);
    for (const std::string& reason : whole_reasons(results)) notes.push_back(reason);
  }
  return notes;
}

page::Table ratio_table(const Panels& panels) {
  auto table = table_of("against-gloo", "How many times as fast as Gloo");
  for (const Way* way : others()) {
    table.estimate(
        concat("Gloo / ", way->title), "interval",
        [way](const Row& row) { return row.panel->gloo_over(way->name, row.bytes); }, ratio_text);
  }
  return table.name("note", &Row::note)
      .notes(
          {"Gloo's time by that of the way, from rounds that both have; no interval of one round"})
      .of(rows_of(panels));
}

std::string latency_note(const WayRow& row) {
  const std::string value = seconds_value(row.bytes);
  const std::string note = cell_note(*row.panel->way(row.way->name), value);
  if (row.way->name == kGloo) return noted({"what the others are compared with", note});
  const CellResult* const gloo = row.panel->way(kGloo);
  const bool lacks_gloo = row.seconds() && !row.ratio() && gloo != nullptr;
  return lacks_gloo ? concat("Gloo: ", cell_text(cell_note(*gloo, value))) : note;
}

page::Table latency_table(const Panels& panels) {
  std::vector<WayRow> rows;
  for (const Panel& panel : panels) {
    for (const Way& way : ways()) {
      if (panel.way(way.name) != nullptr) rows.push_back({{&panel, panel.sizes.front()}, &way});
    }
  }
  return table_of<WayRow>("latency", "Latency: the smallest message")
      .name("way", [](const WayRow& row) { return row.way->title; })
      .estimate("call [µs]", "interval [µs]", &WayRow::seconds, microseconds)
      .estimate("Gloo / it", "interval", &WayRow::ratio, ratio_text)
      .name("note", latency_note)
      .of(rows);
}

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
    add_if_any(figure, series_of(way.title, Style::kLine, panel.sizes, [&](std::int64_t bytes) {
      return point(way.name, bytes, static_cast<double>(bytes));
    }));
  }
}

template <class Value>
void add_predicted(plot::Figure& figure, const Panel& panel, Value value) {
  add_if_any(figure,
      series_of("predicted by a copy", Style::kDashed, panel.sizes, [&](std::int64_t bytes) {
        const auto seconds = panel.predicted_seconds(bytes);
        return point_of(static_cast<double>(bytes),
            seconds ? std::optional<double>(value(bytes, *seconds)) : std::nullopt);
      }));
}

plot::Figure time_figure(const Panel& panel) {
  plot::Figure figure = figure_of(panel, "time", "time of a call", "call [µs]");
  add_ways(figure, panel, [&](const std::string& way, std::int64_t bytes, double x) {
    return point_of(x, panel.seconds(way, bytes), kMicro);
  });
  add_predicted(figure, panel, [](std::int64_t, double seconds) { return seconds * kMicro; });
  return figure;
}

plot::Figure bus_figure(const Panel& panel) {
  plot::Figure figure = figure_of(panel, "bus", "bus bandwidth", "bus bandwidth [GB/s]");
  const auto rate = [&](const std::string& way, std::int64_t bytes, double x) {
    std::optional<plot::Point> point = point_of(x, panel.seconds(way, bytes));
    if (!point) return point;
    const double scale = panel.bus_gigabytes(bytes);
    point->y = scale / point->y;
    if (!point->low) return point;
    // The longest time is the least bandwidth.
    const double longest = *point->high;
    point->high = scale / *point->low;
    point->low = scale / longest;
    return point;
  };
  add_ways(figure, panel, rate);
  add_predicted(figure, panel,
      [&](std::int64_t bytes, double seconds) { return panel.bus_gigabytes(bytes) / seconds; });
  return figure;
}

plot::Figure gloo_figure(const Panel& panel) {
  plot::Figure figure =
      figure_of(panel, "against-gloo", "how many times as fast as Gloo", "Gloo's time / time");
  add_ways(figure, panel, [&](const std::string& way, std::int64_t bytes, double x) {
    return point_of(x, panel.gloo_over(way, bytes));
  });
  if (figure.series.empty()) return figure;
  const auto first = static_cast<double>(panel.sizes.front());
  const auto last = static_cast<double>(panel.sizes.back());
  figure.series.push_back({"as fast as Gloo", {{first, 1}, {last, 1}}, Style::kDashed});
  return figure;
}

}  // namespace

std::vector<page::Table> tables(const Cells& cells) {
  const Panels panels = panels_of(cells);
  return {table_by_ways(panels, table_of("time", "Time of a call"), "[µs]", shown_microseconds,
              explanations(panels)),
      ratio_table(panels), latency_table(panels),
      table_by_ways(panels, table_of("algorithm-bandwidth", "Algorithm bandwidth: message / time"),
          "[GB/s]", algorithm_bandwidth, {}),
      table_by_ways(panels, table_of("bus-bandwidth", "Bus bandwidth, as nccl-tests defines it"),
          "[GB/s]", bus_bandwidth,
          {"algorithm bandwidth times 2 (n - 1) / n for all_reduce of n ranks, (n - 1) / n for "
           "all_gather and reduce_scatter, 1 for broadcast"})};
}

std::vector<plot::Figure> figures(const Cells& cells) {
  std::vector<plot::Figure> all;
  for (const Panel& panel : panels_of(cells)) {
    all.push_back(time_figure(panel));
    all.push_back(bus_figure(panel));
    all.push_back(gloo_figure(panel));
  }
  return all;
}

}  // namespace lockstep::bench::collectives
