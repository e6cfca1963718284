#include "lockstep/bench/studies/pipeline/pipeline_tables.h"

#include <algorithm>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/pipeline/run_times.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kNone = "-";
constexpr double kMebibyte = 1 << 20;
constexpr const char* kOneHasHalf =
    "a single place has half of the cores that the two of a pipeline have; of both's cores: how "
    "many times as fast as a single place with the cores of both";
constexpr const char* kAboutBubble =
    "bubble: share of the places' time that the schedule leaves idle if all stages take as "
    "long and a backward takes two forwards: of 2 places and m chunks 1/2 one after the "
    "other, 1/(m+1) of gpipe and 1f1b; if m is even 1/(2m+1) of interleaved and 1/(3m+1) of "
    "zero-bubble; bound: 2 (1 - bubble)";
constexpr const char* kAboutTheCut =
    "the cut is the study's, after layer2, which gives 44 % of the multiplications to the first "
    "stage; interleaved has 2 stages in each place";
constexpr const char* kByMicroBatches =
    "by its micro-batches: of the bound, compared with a single place that has the same "
    "micro-batches; - where nothing is piped";

std::vector<page::Column> columns(const std::vector<std::string>& names) {
  std::vector<page::Column> all{{"way", true}, {"split"}, {"chunks"}};
  for (const std::string& name : names) all.push_back({name});
  all.push_back({"note", true});
  return all;
}

Row coordinates(const PipelineCell& cell) {
  return {cell.name(), std::to_string(cell.point.split), std::to_string(cell.point.chunks())};
}

void add(std::string& note, const std::string& part) {
  note = note == kNone ? part : note + "; " + part;
}

std::string mean_text(const PipelineCell& cell) {
  const auto runs = mean_of_runs(cell);
  if (!runs) return kNone;
  const std::string mean = seconds_text(runs->mean);
  return runs->repeats < 2 ? mean : concat(mean, " \u00b1 ", seconds_text(runs->deviation));
}

std::string repeats_text(const PipelineCell& cell) {
  const auto runs = mean_of_runs(cell);
  return runs ? std::to_string(runs->repeats) : "0";
}

// What a `-` in the row means, if it is not that the cell has no number.
std::string ratio_note(const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  std::string note = cell_note(cell.result, kRunSeconds);
  if (!cell.result.reason.empty()) return note;
  for (const char* way : {kSinglePlace, kCoresOfBoth}) {
    const PipelineCell* base = find_way(cells, way);
    if (base != nullptr && !base->result.reason.empty())
      add(note, concat(base->name(), ": ", cell_note(base->result, kRunSeconds)));
  }
  return note;
}

Row run_time_row(const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  const auto median = cell.result.estimate(kRunSeconds);
  const auto predicted = predicted_seconds(cells, cell);
  Row row = coordinates(cell);
  row.push_back(std::to_string(cell.cores));
  row.push_back(kNone);
  row.push_back(mean_text(cell));
  row.push_back(repeats_text(cell));
  row.push_back(median ? seconds_text(median->median) : kNone);
  row.push_back(median ? seconds_interval(*median) : kNone);
  row.push_back(predicted ? seconds_text(*predicted) : kNone);
  std::string note = cell_note(cell.result, kRunSeconds);
  const bool is_base = cell.point.way == kSinglePlace;
  if (is_base && cell.result.reason.empty()) add(note, "predicts the others");
  if (!is_base && !predicted) add(note, "no single place to predict from");
  row.push_back(note);
  return row;
}

Row speed_up_row(const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  const auto faster = over_single(cells, cell), both = over_both(cells, cell);
  const auto by_micro = over_micro_batches(cells, cell);
  const ScheduleBound bound = bound_of(cell);
  Row row = coordinates(cell);
  row.push_back(faster ? ratio_text(faster->median) : kNone);
  row.push_back(faster ? ratio_interval(*faster) : kNone);
  row.push_back(percent_text(bound.idle));
  row.push_back(ratio_text(bound.speed_up));
  row.push_back(faster ? percent_text(faster->median / bound.speed_up) : kNone);
  row.push_back(by_micro ? percent_text(by_micro->median / bound.speed_up) : kNone);
  row.push_back(both ? ratio_text(both->median) : kNone);
  row.push_back(ratio_note(cells, cell));
  return row;
}

std::string mebibytes(double bytes) { return cell(bytes / kMebibyte, 0); }

std::string by_place(const std::vector<int>& images) {
  std::string text;
  for (const int each : images) text += concat(text.empty() ? "" : " / ", each);
  return text;
}

Row memory_row(const std::vector<PipelineCell>& cells, const PipelineCell& each) {
  const PipelineCell* single = find_way(cells, kSinglePlace);
  const auto peak = each.result.estimate(kPeakMemory);
  const auto ratio =
      single == nullptr ? std::nullopt : ratio_of(each.result, single->result, kPeakMemory);
  Row row = coordinates(each);
  row.push_back(peak ? mebibytes(peak->median) : kNone);
  row.push_back(
      peak && peak->count > 1 ? concat(mebibytes(peak->low), " to ", mebibytes(peak->high))
                              : kNone);
  row.push_back(ratio ? ratio_text(ratio->median) : kNone);
  row.push_back(by_place(bound_of(each).live_images));
  std::string note = ratio_note(cells, each);
  if (each.result.reason.empty() && !peak) add(note, "the run did not tell its memory");
  row.push_back(note);
  return row;
}

void add_oversubscribed(page::Table& table, const std::vector<PipelineCell>& cells) {
  const bool any = std::any_of(cells.begin(), cells.end(), [](const PipelineCell& each) {
    return each.result.oversubscribed;
  });
  if (!any) return;
  table.notes.push_back(
      "oversubscribed: more places than cores; they take each other's time, so it is no fair test "
      "of that many places");
}

std::string batch_note(const std::vector<PipelineCell>& cells) {
  const int batch = cells.empty() ? kPipelineStudyBatch : cells.front().point.batch;
  std::string text = concat(
      "a run is ", kPipelineRunBatches, " batches of ", batch, " images, 128 x 128, ResNet50 of ",
      "1000 classes, SGD");
  if (batch != kPipelineStudyBatch)
    text += concat("; smaller batch than the study's ", kPipelineStudyBatch);
  return text + "; split: images of a micro-batch";
}

}  // namespace

page::Table run_time_table(const std::vector<PipelineCell>& cells) {
  page::Table table{
      .id = "pipeline-times",
      .title = "Seconds of a run",
      .columns = columns(
          {"cores", "published [s]", "mean \u00b1 deviation [s]", "repeats", "median [s]",
           "interval [s]", "predicted [s]"}),
      .rows = {},
      .notes = {
          batch_note(cells),
          "published: the study shows its times as pictures alone, and gives no number",
          "mean and standard deviation as in the study, over all repeats; median and interval over "
          "the rounds (- in one round), a process each, after one step to warm up",
          "predicted: median of the single place / (places x (1 - idle share of the schedule)); "
          "with the cores of both: half"}};
  for (const PipelineCell& each : cells) table.rows.push_back(run_time_row(cells, each));
  add_oversubscribed(table, cells);
  std::vector<CellResult> results;
  for (const PipelineCell& each : cells) results.push_back(each.result);
  for (const std::string& reason : whole_reasons(results)) table.notes.push_back(reason);
  return table;
}

page::Table pipeline_speed_up_table(const std::vector<PipelineCell>& cells) {
  page::Table table{
      .id = "pipeline-speed-up",
      .title = "How many times as fast as a single place",
      .columns = columns(
          {"speed-up", "interval", "bubble", "bound", "of the bound", "by its micro-batches",
           "of both's cores"}),
      .rows = {},
      .notes = {
          kOneHasHalf, kAboutBubble, kByMicroBatches, kAboutTheCut, "interval: - in one round"}};
  for (const PipelineCell& each : cells) {
    if (each.point.way != kSinglePlace) table.rows.push_back(speed_up_row(cells, each));
  }
  add_oversubscribed(table, cells);
  return table;
}

page::Table pipeline_memory_table(const std::vector<PipelineCell>& cells) {
  page::Table table{
      .id = "pipeline-memory",
      .title = "Peak memory",
      .columns = columns({"peak [MiB]", "interval [MiB]", "of single", "images kept"}),
      .rows = {},
      .notes = {
          "the most that the run's one process had resident, places together: LibTorch, "
          "parameters, "
          "their gradients, activations",
          "images kept: most whose activations the schedule keeps, in each place (interleaved: of "
          "half a stage); interval: - in one round"}};
  for (const PipelineCell& each : cells) table.rows.push_back(memory_row(cells, each));
  add_oversubscribed(table, cells);
  return table;
}

}  // namespace lockstep::bench
