#include "lockstep/bench/studies/collectives/collective_tables.h"

#include <cstdio>
#include <functional>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kNone = "-";
constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;

// What stands in a cell, of the seconds of a call.
using Told = std::function<double(const CollectivePanel&, std::int64_t bytes, double seconds)>;

std::string microseconds(double seconds) { return seconds_text(seconds * kMicro); }

// Three decimals would leave nothing of a small message's bandwidth.
std::string number_text(double value) {
  if (value >= 0.1 || value <= 0) return seconds_text(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

std::string microseconds_interval(const Estimate& estimate) {
  if (estimate.count < 2) return kNone;
  return microseconds(estimate.low) + " to " + microseconds(estimate.high);
}

std::vector<page::Column> columns(const std::vector<std::string>& heads) {
  std::vector<page::Column> all{{"op", true}, {"ranks"}, {"message"}};
  for (const std::string& head : heads) all.push_back({head});
  all.push_back({"note", true});
  return all;
}

Row coordinates(const CollectivePanel& panel, std::int64_t bytes) {
  return {name_of(panel.collective), std::to_string(panel.ranks), size_text(bytes)};
}

std::vector<std::string> heads_of_ways(const std::string& unit) {
  std::vector<std::string> heads;
  for (const CollectiveWay& way : collective_ways()) heads.push_back(concat(way.title, " ", unit));
  heads.push_back(concat("predicted ", unit));
  return heads;
}

// A row for each size, a column for each way and what a copy predicts.
page::Table table_by_ways(
    const std::vector<CollectivePanel>& panels, page::Table table, const Told& told) {
  for (const CollectivePanel& panel : panels) {
    for (const std::int64_t bytes : panel.sizes) {
      Row row = coordinates(panel, bytes);
      for (const CollectiveWay& way : collective_ways()) {
        const auto seconds = panel.seconds(way.name, bytes);
        row.push_back(seconds ? number_text(told(panel, bytes, seconds->median)) : kNone);
      }
      const auto predicted = panel.predicted_seconds(bytes);
      row.push_back(predicted ? number_text(told(panel, bytes, *predicted)) : kNone);
      row.push_back(panel.note(bytes));
      table.rows.push_back(row);
    }
  }
  return table;
}

std::vector<std::string> explanations(const std::vector<CollectivePanel>& panels) {
  std::vector<std::string> notes{
      "medians over the rounds, of a round the median of its repeats; a repeat is some calls in a "
      "row, its time that of the slowest rank",
      "shm: tensors in the memory that the group gives, as DDP's buckets are; shm staged: any "
      "other "
      "tensor, copied through the group's; threads: ranks are threads of one process; Gloo over "
      "loopback, not pinned, which is best for it",
      "predicted: the least bytes that ranks with one memory must read and write, at the rate at "
      "which all of them copied as many bytes at once in the same run; it has no latency, so "
      "small messages cannot come near it; a copy may be slower than a sum that streams",
      "no study published figures of collectives, so there is no column of them"};
  for (const CollectivePanel& panel : panels) {
    if (!panel.oversubscribed()) continue;
    notes.push_back(
        "oversubscribed: more ranks than cores; they wait for each other's time, so it is no fair "
        "test of that many ranks");
    break;
  }
  for (const CollectivePanel& panel : panels) {
    std::vector<CellResult> results;
    for (const auto& each : panel.ways) results.push_back(each.second);
    for (const std::string& reason : whole_reasons(results)) notes.push_back(reason);
  }
  return notes;
}

page::Table time_table(const std::vector<CollectivePanel>& panels) {
  return table_by_ways(
      panels,
      {.id = "collectives-time",
       .title = "Time of a call",
       .columns = columns(heads_of_ways("[µs]")),
       .rows = {},
       .notes = explanations(panels)},
      [](const CollectivePanel&, std::int64_t, double seconds) { return seconds * kMicro; });
}

page::Table algorithm_table(const std::vector<CollectivePanel>& panels) {
  return table_by_ways(
      panels,
      {.id = "collectives-algorithm-bandwidth",
       .title = "Algorithm bandwidth: message / time",
       .columns = columns(heads_of_ways("[GB/s]")),
       .rows = {}},
      [](const CollectivePanel&, std::int64_t bytes, double seconds) {
        return static_cast<double>(bytes) / seconds * kGiga;
      });
}

page::Table bus_table(const std::vector<CollectivePanel>& panels) {
  return table_by_ways(
      panels,
      {.id = "collectives-bus-bandwidth",
       .title = "Bus bandwidth, as nccl-tests has it",
       .columns = columns(heads_of_ways("[GB/s]")),
       .rows = {},
       .notes =
           {"algorithm bandwidth times 2 (n - 1) / n for all_reduce of n ranks, (n - 1) / n for "
            "all_gather and reduce_scatter, 1 for broadcast"}},
      [](const CollectivePanel& panel, std::int64_t bytes, double seconds) {
        return static_cast<double>(bytes) / seconds * kGiga *
               bus_factor(panel.collective, panel.ranks);
      });
}

Row ratio_row(const CollectivePanel& panel, std::int64_t bytes) {
  Row row = coordinates(panel, bytes);
  for (const CollectiveWay& way : collective_ways()) {
    if (way.name == kGloo) continue;
    const auto ratio = panel.gloo_over(way.name, bytes);
    row.push_back(ratio ? ratio_text(ratio->median) : kNone);
    row.push_back(ratio ? ratio_interval(*ratio) : kNone);
  }
  row.push_back(panel.note(bytes));
  return row;
}

page::Table ratio_table(const std::vector<CollectivePanel>& panels) {
  std::vector<std::string> heads;
  for (const CollectiveWay& way : collective_ways()) {
    if (way.name == kGloo) continue;
    heads.push_back(concat("Gloo / ", way.title));
    heads.emplace_back("interval");
  }
  page::Table table{
      .id = "collectives-against-gloo",
      .title = "How many times as fast as Gloo",
      .columns = columns(heads),
      .rows = {},
      .notes = {
          "Gloo's time by that of the way, from rounds that both have; no interval of one round"}};
  for (const CollectivePanel& panel : panels) {
    for (const std::int64_t bytes : panel.sizes) table.rows.push_back(ratio_row(panel, bytes));
  }
  return table;
}

Row latency_row(const CollectivePanel& panel, const CollectiveWay& way, const CellResult& result) {
  const std::int64_t bytes = panel.sizes.front();
  const auto seconds = panel.seconds(way.name, bytes);
  const auto ratio = panel.gloo_over(way.name, bytes);
  std::string note = cell_note(result, seconds_value(bytes));
  if (way.name == kGloo) {
    const char* const role = "what the others are compared with";
    note = note == kNone ? role : concat(role, "; ", note);
  }
  const CellResult* const gloo = panel.way(kGloo);
  const bool lacks_gloo = way.name != kGloo && seconds && !ratio && gloo != nullptr;
  if (lacks_gloo) note = concat("Gloo: ", cell_note(*gloo, seconds_value(bytes)));
  return {
      name_of(panel.collective),
      std::to_string(panel.ranks),
      size_text(bytes),
      way.title,
      seconds ? microseconds(seconds->median) : kNone,
      seconds ? microseconds_interval(*seconds) : kNone,
      ratio ? ratio_text(ratio->median) : kNone,
      ratio ? ratio_interval(*ratio) : kNone,
      note};
}

page::Table latency_table(const std::vector<CollectivePanel>& panels) {
  page::Table table{
      .id = "collectives-latency",
      .title = "Latency: the smallest message",
      .columns =
          {{"op", true},
           {"ranks"},
           {"message"},
           {"way", true},
           {"call [µs]"},
           {"interval [µs]"},
           {"Gloo / it"},
           {"interval"},
           {"note", true}},
      .rows = {}};
  for (const CollectivePanel& panel : panels) {
    for (const CollectiveWay& way : collective_ways()) {
      const CellResult* const result = panel.way(way.name);
      if (result != nullptr) table.rows.push_back(latency_row(panel, way, *result));
    }
  }
  return table;
}

}  // namespace

std::vector<page::Table> collective_tables(const std::vector<CollectivePanel>& panels) {
  return {
      time_table(panels), ratio_table(panels), latency_table(panels), algorithm_table(panels),
      bus_table(panels)};
}

}  // namespace lockstep::bench
