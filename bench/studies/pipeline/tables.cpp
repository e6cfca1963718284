#include "bench/studies/pipeline/study.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::pipeline {
namespace {

constexpr const char* kOneHasHalf =
    "a single place has half of the cores that the two of a pipeline have; of both's cores: how "
    "many times as fast as a single place with the cores of both";
constexpr const char* kAboutBubble =
    "bubble: share of the places' time that the schedule leaves idle if all stages take as "
    "long and a backward takes two forwards: of 2 places and m micro-batches 1/2 one after the "
    "other, 1/(m+1) of gpipe and 1f1b; if m is even 1/(2m+1) of interleaved and 1/(3m+1) of "
    "zero-bubble; bound: 2 (1 - bubble)";
constexpr const char* kAboutTheCut =
    "the cut is the study's, after layer2, which gives 44 % of the multiplications to the first "
    "stage; interleaved has 2 stages in each place";
constexpr const char* kByMicroBatches =
    "by its micro-batches: of the bound, compared with a single place that has the same "
    "micro-batches; - where nothing is piped";

std::string mebibytes(double bytes) { return decimals<0>(bytes / (1 << 20)); }

std::string mean_text(const Cell& cell) {
  const auto runs = mean_of_runs(cell);
  if (!runs) return kNone;
  const std::string mean = seconds_text(runs->mean);
  return runs->repeats < 2 ? mean : concat(mean, " \u00b1 ", seconds_text(runs->deviation));
}

int repeats_of(const Cell& cell) { return mean_of_runs(cell).value_or(MeanOfRuns()).repeats; }

std::string time_note(const Cells& cells, const Cell& cell) {
  const bool is_base = cell.way == kSinglePlace;
  return noted({cell_note(cell.result, kRunSeconds),
      is_base && cell.result.reason.empty() ? "predicts the others" : "",
      !is_base && !predicted_seconds(cells, cell) ? "no single place to predict from" : ""});
}

// What a `-` in the row means, if it is not that the cell has no number.
std::string ratio_note(const Cells& cells, const Cell& cell) {
  std::vector<std::string> parts{cell_note(cell.result, kRunSeconds)};
  for (const char* way : {kSinglePlace, kCoresOfBoth}) {
    const Cell* base = find_way(cells, way);
    if (cell.result.reason.empty() && base != nullptr && !base->result.reason.empty())
      parts.push_back(concat(base->name(), ": ", cell_note(base->result, kRunSeconds)));
  }
  return noted(parts);
}

std::string images_kept(const Cell& cell) {
  std::string text;
  for (const int each : bound_of(cell).live_images) text += concat(text.empty() ? "" : " / ", each);
  return text;
}

std::string batch_note(const Cells& cells) {
  const int batch = cells.empty() ? kStudyBatch : cells.front().batch;
  const std::string smaller =
      batch == kStudyBatch ? "" : concat("; smaller batch than the study's ", kStudyBatch);
  return concat("a run is ", kRunBatches, " batches of ", batch,
      " images, 128 x 128, ResNet50 of 1000 classes, SGD", smaller,
      "; split: images of a micro-batch");
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("pipeline-") + what, title);
  return table.name("way", &Cell::name)
      .number("split", &Cell::split)
      .number("chunks", &Cell::chunks);
}

page::Table time_table(const Cells& cells) {
  return table_of("times", "Seconds of a run")
      .number("cores", [](const Cell& cell) { return cell.result.cell.cores; })
      .number("published [s]", [](const Cell&) { return kNone; })
      .number("mean \u00b1 deviation [s]", mean_text)
      .number("repeats", repeats_of)
      .estimate(
          "median [s]", "interval [s]", [](const Cell& cell) { return cell.estimate(kRunSeconds); })
      .number("predicted [s]", [&](const Cell& cell) { return predicted_seconds(cells, cell); })
      .name("note", [&](const Cell& cell) { return time_note(cells, cell); })
      .notes({batch_note(cells),
          "published: the study shows its times only as pictures, and gives no number",
          "mean and standard deviation as in the study, over all repeats and divided by their "
          "number; median and interval over the rounds (- in one round), a process each, after one "
          "step to warm up",
          "predicted: median of the single place / (places x (1 - idle share of the schedule)); "
          "with the cores of both: half",
          oversubscribed_note(any_oversubscribed(cells))})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

page::Table speed_up_table(const Cells& cells) {
  const auto of_bound = [](const Cell& cell, const std::optional<Estimate>& faster) {
    return faster ? std::optional(faster->median / bound_of(cell).speed_up) : std::nullopt;
  };
  return table_of("speed-up", "How many times as fast as a single place")
      .estimate(
          "speed-up", "interval", [&](const Cell& cell) { return over_single(cells, cell); },
          ratio_text)
      .number(
          "bubble", [](const Cell& cell) { return std::optional(bound_of(cell).idle); },
          percent_text)
      .number(
          "bound", [](const Cell& cell) { return std::optional(bound_of(cell).speed_up); },
          ratio_text)
      .number(
          "of the bound",
          [&](const Cell& cell) { return of_bound(cell, over_single(cells, cell)); }, percent_text)
      .number(
          "by its micro-batches",
          [&](const Cell& cell) { return of_bound(cell, over_micro_batches(cells, cell)); },
          percent_text)
      .number(
          "of both's cores", [&](const Cell& cell) { return over_both(cells, cell); }, ratio_text)
      .name("note", [&](const Cell& cell) { return ratio_note(cells, cell); })
      .notes({kOneHasHalf, kAboutBubble, kByMicroBatches, kAboutTheCut, "interval: - in one round",
          oversubscribed_note(any_oversubscribed(cells))})
      .of(select(cells, [](const Cell& cell) { return cell.way != kSinglePlace; }));
}

page::Table memory_table(const Cells& cells) {
  const auto peak = [](const Cell& cell) { return cell.estimate(kPeakMemory); };
  const auto note = [&](const Cell& cell) {
    const bool lacks = cell.result.reason.empty() && !peak(cell);
    return noted({ratio_note(cells, cell), lacks ? "the run did not report its memory" : ""});
  };
  return table_of("memory", "Peak memory")
      .estimate("peak [MiB]", "interval [MiB]", peak, mebibytes)
      .number(
          "of single",
          [&](const Cell& cell) {
            return ratio_of(&cell, find_way(cells, kSinglePlace), kPeakMemory);
          },
          ratio_text)
      .number("images kept", images_kept)
      .name("note", note)
      .notes({"the most that the run's one process had resident, places together: LibTorch, "
              "parameters, their gradients, activations",
          "images kept: most whose activations the schedule keeps, in each place (interleaved: of "
          "half a stage); interval: - in one round",
          oversubscribed_note(any_oversubscribed(cells))})
      .of(cells);
}

}  // namespace

std::vector<page::Table> tables(const Cells& cells) {
  return {time_table(cells), speed_up_table(cells), memory_table(cells)};
}

}  // namespace lockstep::bench::pipeline
