#include <algorithm>

#include "bench/studies/pipeline/study.h"
#include "bench/study/figure_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::pipeline {
namespace {

using plot::Figure;
using plot::Series;
using Style = Series::Style;

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};

int batch_of(const Cells& cells) { return cells.empty() ? kStudyBatch : cells.front().batch; }

int split_of(const Cells& cells) { return standard_split(batch_of(cells)); }

std::string run_axis() { return concat("ResNet50, ", kRunBatches, " batches [s]"); }

// Notes for a reader who sees only the picture.
std::string cells_note(const Cells& cells, const std::string& bars) {
  const int batch = batch_of(cells);
  return concat(bars, " Batch ", batch,
      batch == kStudyBatch ? "" : concat(", the study's is ", kStudyBatch), ".",
      any_oversubscribed(cells) ? " Oversubscribed: more places than cores." : "");
}

std::string deviation_note(const Cells& cells) {
  int most = 0;
  for (const Cell& cell : cells) {
    most = std::max(most, mean_of_runs(cell).value_or(MeanOfRuns()).repeats);
  }
  if (most < 2) return cells_note(cells, "One run each.");
  return cells_note(cells, concat("Means of up to ", most, " runs, with the standard deviation."));
}

// As the study draws them: mean and standard deviation.
std::optional<plot::Point> mean_point(double x, const Cell* cell) {
  const auto runs = cell == nullptr ? std::nullopt : mean_of_runs(*cell);
  if (!runs) return std::nullopt;
  if (runs->repeats < 2) return plot::Point{x, runs->mean};
  return plot::Point{x, runs->mean, runs->mean - runs->deviation, runs->mean + runs->deviation};
}

/// A bar of a figure: a cell, if there is one, and its name.
struct Bar {
  std::string name;
  const Cell* cell;
};

Figure ways_figure(
    const Cells& cells, const std::vector<Bar>& bars, const char* id, const char* title) {
  return BarsOf<Bar>(id, title, "way", run_axis(), &Bar::name)
      .bars("", [](const Bar& bar) { return mean_point(0, bar.cell); })
      .of(bars, deviation_note(cells));
}

std::vector<const Cell*> over_splits(const Cells& cells, const std::string& way) {
  return select(cells, [&](const Cell& cell) { return cell.way == way; });
}

Series means_over_splits(const Cells& cells, const std::string& way) {
  return series_of(way == kMicroBatches ? "single, micro-batches" : way, Style::kLine,
      over_splits(cells, way), [](const Cell* cell) { return mean_point(cell->split, cell); });
}

Series bound_over_splits(const Cells& cells, const std::string& way) {
  return series_of(way + ", bubble bound", Style::kDashed, over_splits(cells, way),
      [&](const Cell* cell) { return point_of(cell->split, predicted_seconds(cells, *cell)); });
}

// What does not depend on the split size, as a line over all of them.
Series level(const Cells& cells, const char* way, const Series& over) {
  const Cell* cell = find_way(cells, way);
  std::vector<double> ends;
  if (over.points.size() > 1) ends = {over.points.front().x, over.points.back().x};
  return series_of(cell == nullptr ? way : cell->name(), Style::kLine, ends,
      [&](double x) { return mean_point(x, cell); });
}

Figure splits_figure(const char* what, const char* title, const std::string& note) {
  return {.id = concat("pipeline-", what),
      .title = title,
      .x = {.label = "pipeline split size [images]"},
      .y = {.label = run_axis()},
      .series = {},
      .note = note};
}

Figure tradeoff_figure(const Cells& cells) {
  Figure figure = splits_figure("split-size-tradeoff", "Pipelined over the split size",
      deviation_note(cells) + " Without marks: what the bubble allows.");
  const Series piped = means_over_splits(cells, kStudysSchedule);
  for (const Series& series :
      {piped, bound_over_splits(cells, kStudysSchedule), means_over_splits(cells, kMicroBatches),
          level(cells, kSinglePlace, piped), level(cells, kModelParallel, piped)}) {
    add_if_any(figure, series);
  }
  return figure;
}

Figure schedules_figure(const Cells& cells) {
  const int split = split_of(cells);
  std::vector<const Cell*> shown{find_way(cells, kModelParallel)};
  for (const char* way : kSchedules) shown.push_back(find_way(cells, way, split));
  std::erase(shown, nullptr);
  return BarsOf<Cell>("pipeline-schedules",
      concat("The schedules at split size ", split, ", and their bubble bounds"), "schedule",
      "times as fast as a single place", &Cell::name)
      .bars("here", [&](const Cell& cell) { return over_single(cells, cell); })
      .bars("bubble bound", [](const Cell& cell) { return std::optional(bound_of(cell).speed_up); })
      .of(shown, cells_note(cells, "Ratios of medians; whiskers are intervals over the rounds."));
}

Figure schedules_over_splits_figure(const Cells& cells) {
  Figure figure = splits_figure("schedules-over-splits",
      "The schedules over the split size, and their bubble bounds",
      deviation_note(cells) + " Without marks: what the bubbles allow; 1f1b's is gpipe's.");
  for (const char* way : kSchedules) add_if_any(figure, means_over_splits(cells, way));
  for (const std::string way : kSchedules) {
    if (way != "1f1b") add_if_any(figure, bound_over_splits(cells, way));
  }
  return figure;
}

Figure memory_figure(const Cells& cells) {
  const int split = split_of(cells);
  const auto shown =
      select(cells, [&](const Cell& cell) { return cell.chunks() == 1 || cell.split == split; });
  return BarsOf<Cell>("pipeline-memory", concat("Peak memory, schedules at split size ", split),
      "way", "peak memory of the process [MiB]", &Cell::name)
      .bars(
          "", [](const Cell& cell) { return cell.estimate(kPeakMemory); }, 1.0 / (1 << 20))
      .of(shown, cells_note(cells, "Medians; whiskers are intervals over the rounds."));
}

bool has_schedules_over_splits(const Cells& cells) {
  return first_where(cells, [&](const Cell& cell) {
    return cell.way == kSchedules[1] && cell.split != split_of(cells);
  }) != nullptr;
}

}  // namespace

std::vector<Figure> figures(const Cells& cells) {
  const std::vector<Bar> unpiped{{"Model Parallel", find_way(cells, kModelParallel)},
      {"Single Place", find_way(cells, kSinglePlace)},
      {"Single, Cores of Both", find_way(cells, kCoresOfBoth)}};
  std::vector<Bar> with_pipeline = unpiped;
  with_pipeline.insert(
      with_pipeline.begin() + 2, {concat("Pipelining Model Parallel (split ", split_of(cells), ")"),
                                     find_way(cells, kStudysSchedule, split_of(cells))});
  std::vector<Figure> all{
      ways_figure(cells, unpiped, "pipeline-mp-vs-rn", "Model parallel against a single place"),
      ways_figure(cells, with_pipeline, "pipeline-mp-vs-rn-vs-pp",
          "Model parallel, a single place, and pipelined"),
      tradeoff_figure(cells), schedules_figure(cells)};
  if (has_schedules_over_splits(cells)) all.push_back(schedules_over_splits_figure(cells));
  all.push_back(memory_figure(cells));
  return all;
}

}  // namespace lockstep::bench::pipeline
