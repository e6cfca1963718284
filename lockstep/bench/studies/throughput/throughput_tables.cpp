#include "lockstep/bench/studies/throughput/throughput_tables.h"

#include <algorithm>
#include <cmath>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kNone = "-";
constexpr const char* kPredicted =
    "predicted: one place's time, divided by how many times its cores the cell has: nothing is "
    "lost by spreading; of half precision no other cell tells";

std::string milliseconds(const std::optional<double>& seconds) {
  return seconds ? seconds_text(1000 * *seconds) : kNone;
}

std::optional<double> median_of(const ThroughputCell& cell) {
  const auto estimate = cell.result.estimate(kSecondsASample);
  return estimate ? std::optional(estimate->median) : std::nullopt;
}

std::string milliseconds_interval(const std::optional<Estimate>& estimate) {
  if (!estimate) return kNone;
  Estimate thousand = *estimate;
  for (double* value : {&thousand.median, &thousand.low, &thousand.high}) *value *= 1000;
  return seconds_interval(thousand);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (part != kNone) text += (text.empty() ? "" : "; ") + part;
  }
  return text.empty() ? kNone : text;
}

Row coordinates(const ThroughputCell& cell) {
  return {
      cell.way,
      std::to_string(cell.places),
      std::to_string(cell.batch),
      std::to_string(cell.batch / cell.places),
      cell.precision,
      std::to_string(cell.image_size)};
}

std::string why_not_predicted(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  if (cell.way == "serial") return "the others are predicted from it";
  if (cell.is_half()) return "no prediction";
  if (one_place(cells, cell.image_size) == nullptr) return "not measured on one place";
  return predicted_seconds(cells, cell) ? kNone : "one place has no number";
}

std::string why_not_published(const ThroughputCell& cell) {
  if (cell.way == "ddp") return "the study has no ddp";
  return cell.image_size == kStudyImageSize ? kNone : "the study has no such images";
}

Row cost_row(const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  Row row = coordinates(cell);
  row.push_back(milliseconds(median_of(cell)));
  row.push_back(milliseconds_interval(cell.result.estimate(kSecondsASample)));
  row.push_back(milliseconds(predicted_seconds(cells, cell)));
  row.push_back(milliseconds(published_seconds(cells, cell)));
  row.push_back(joined({note_of(cell), why_not_predicted(cells, cell), why_not_published(cell)}));
  return row;
}

// What the study had and these cells have not.
std::string cuts(const std::vector<ThroughputCell>& cells) {
  int steps = cells.front().steps, least = steps;
  for (const ThroughputCell& cell : cells) least = std::min(least, cell.steps);
  const std::string range = least == steps ? concat(steps) : concat(least, " to ", steps);
  return concat(
      "here ", range, " steps, the first not timed, and batches from ", cells.front().batch,
      " images on; the study's: 5000 steps, 128 and 512 images");
}

std::vector<std::string> cost_notes(const std::vector<ThroughputCell>& cells) {
  std::vector<std::string> notes{
      "batch: images a step on all places; medians over the rounds, intervals as said in the "
      "conclusion",
      concat(kPredicted, "; published: ", kPublishedThroughputWith)};
  if (!cells.empty()) notes.push_back(cuts(cells));
  const auto any = [&](auto&& holds) { return std::any_of(cells.begin(), cells.end(), holds); };
  if (any([](const ThroughputCell& cell) { return cell.result.oversubscribed; })) {
    notes.emplace_back(
        "oversubscribed: more places than cores; they take each other's time, so it is no fair "
        "test of that many places");
  }
  std::vector<CellResult> results;
  for (const ThroughputCell& cell : cells) results.push_back(cell.result);
  for (const std::string& reason : whole_reasons(results)) notes.push_back(reason);
  return notes;
}

std::string number(const std::optional<double>& ratio) {
  return ratio ? ratio_text(*ratio) : kNone;
}

Row ratio_row(const ThroughputRatio& ratio) {
  std::vector<std::string> parts;
  if (ratio.measured) {
    parts.push_back(note_of(*ratio.cell));
  } else {
    parts.push_back(concat("above: ", note_of(*ratio.base)));
    parts.push_back(concat("below: ", note_of(*ratio.cell)));
  }
  if (!ratio.published) parts.emplace_back("the study has no ddp");
  if (!ratio.predicted) parts.emplace_back("no prediction");
  const auto measured = ratio.measured ? std::optional(ratio.measured->median) : std::nullopt;
  return {
      ratio.name(),
      number(measured),
      ratio.measured ? ratio_interval(*ratio.measured) : kNone,
      number(ratio.predicted),
      ratio.published ? seconds_text(*ratio.published) : kNone,  // 0.997 is not 1.00
      ratio.measured
          ? side_of_one(
                *ratio.measured, sure(*ratio.measured, "faster"), sure(*ratio.measured, "slower"))
          : kNone,
      joined(parts)};
}

Row way_row(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& dp, const ThroughputCell& ddp) {
  Row row = coordinates(dp);
  row.erase(row.begin());
  const auto ratio = dp_over_ddp(cells, dp);
  row.push_back(milliseconds(median_of(dp)));
  row.push_back(milliseconds(median_of(ddp)));
  row.push_back(ratio ? ratio_text(ratio->median) : kNone);
  row.push_back(ratio ? ratio_interval(*ratio) : kNone);
  row.push_back(ratio ? side_of_one(*ratio, "ddp", "dp") : kNone);
  const std::string left = note_of(dp), right = note_of(ddp);
  std::string note = left;
  if (left != right) {
    note = joined(
        {left == kNone ? kNone : concat("dp: ", left),
         right == kNone ? kNone : concat("ddp: ", right)});
  }
  row.push_back(note);
  return row;
}

}  // namespace

std::string note_of(const ThroughputCell& cell) {
  std::vector<std::string> parts{cell_note(cell.result, kSecondsASample)};
  const auto seconds = cell.result.estimate(kSecondsASample);
  if (seconds && seconds->count < 2) parts.emplace_back("one round");
  const auto skipped = cell.result.estimate("skipped_steps");
  const auto steps = skipped ? std::lround(skipped->median) : 0;
  if (steps > 0) parts.push_back(concat("overflow left out ", steps, " of ", cell.steps, " steps"));
  return joined(parts);
}

page::Table sample_cost_table(const std::vector<ThroughputCell>& cells) {
  page::Table table{
      .id = "throughput-samples-cost",
      .title = "Milliseconds a sample: here, predicted, published",
      .columns =
          {{"way", true},
           {"places"},
           {"batch"},
           {"a place"},
           {"precision", true},
           {"image [px]"},
           {"here [ms]"},
           {"interval [ms]"},
           {"predicted [ms]"},
           {"published [ms]"},
           {"note", true}},
      .rows = {},
      .notes = cost_notes(cells)};
  for (const ThroughputCell& cell : cells) table.rows.push_back(cost_row(cells, cell));
  return table;
}

page::Table throughput_ratio_table(const std::vector<ThroughputCell>& cells) {
  page::Table table{
      .id = "throughput-ratios",
      .title = "How many times as fast: the study's ratios",
      .columns =
          {{"seconds a sample of", true},
           {"here"},
           {"interval"},
           {"predicted"},
           {"published"},
           {"means", true},
           {"note", true}},
      .rows = {},
      .notes = {
          "above 1: what stands after the stroke is the faster; predicted: as many times as it has "
          "the cores of one place, none for half precision; published for float16: also beside "
          "bfloat16, which the study's GPUs lack"}};
  for (const ThroughputRatio& ratio : throughput_ratios(cells)) {
    table.rows.push_back(ratio_row(ratio));
  }
  return table;
}

page::Table throughput_way_table(const std::vector<ThroughputCell>& cells) {
  page::Table table{
      .id = "throughput-dp-or-ddp",
      .title = "DataParallel or DistributedDataParallel",
      .columns =
          {{"places"},
           {"batch"},
           {"a place"},
           {"precision", true},
           {"image [px]"},
           {"dp [ms]"},
           {"ddp [ms]"},
           {"dp / ddp"},
           {"interval"},
           {"quicker", true},
           {"note", true}},
      .rows = {},
      .notes = {
          "milliseconds a sample; one is the quicker where the whole interval lies on its side of "
          "1"}};
  for (const ThroughputCell& dp : cells) {
    const ThroughputCell* ddp = other_way(cells, dp, "ddp");
    if (dp.way == "dp" && ddp != nullptr) table.rows.push_back(way_row(cells, dp, *ddp));
  }
  return table;
}

}  // namespace lockstep::bench
