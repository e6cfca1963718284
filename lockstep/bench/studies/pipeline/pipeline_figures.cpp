#include "lockstep/bench/studies/pipeline/pipeline_figures.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/bench/studies/pipeline/run_times.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Point;
using plot::Series;
using Style = Series::Style;
using Cells = std::vector<PipelineCell>;

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
constexpr double kMebibyte = 1 << 20;

int batch_of(const Cells& cells) {
  return cells.empty() ? kPipelineStudyBatch : cells.front().point.batch;
}

int split_of(const Cells& cells) { return standard_split(batch_of(cells)); }

std::string run_axis() { return concat("ResNet50, ", kPipelineRunBatches, " batches [s]"); }

// What a reader must know who sees nothing but the picture.
std::string cells_note(const Cells& cells, const std::string& bars) {
  std::string note = concat(bars, " Batch ", batch_of(cells));
  if (batch_of(cells) != kPipelineStudyBatch)
    note += concat(", the study's is ", kPipelineStudyBatch);
  note += ".";
  const bool over = std::any_of(cells.begin(), cells.end(), [](const PipelineCell& cell) {
    return cell.result.oversubscribed;
  });
  return over ? note + " Oversubscribed: more places than cores." : note;
}

std::string deviation_note(const Cells& cells) {
  int most = 0;
  for (const PipelineCell& cell : cells) {
    const auto runs = mean_of_runs(cell);
    most = std::max(most, runs ? runs->repeats : 0);
  }
  if (most < 2) return cells_note(cells, "One run each.");
  return cells_note(cells, concat("Means of up to ", most, " runs, with the standard deviation."));
}

// As the study draws them: mean and standard deviation.
std::optional<Point> mean_point(double x, const PipelineCell* cell) {
  const auto runs = cell == nullptr ? std::nullopt : mean_of_runs(*cell);
  if (!runs) return std::nullopt;
  if (runs->repeats < 2) return Point{x, runs->mean};
  return Point{x, runs->mean, runs->mean - runs->deviation, runs->mean + runs->deviation};
}

/// Is a bar of a figure: a cell and its name.
struct Bar {
  std::string name;
  const PipelineCell* cell;
};

std::vector<Bar> unpiped_bars(const Cells& cells) {
  return {
      {"Model Parallel", find_way(cells, kModelParallel)},
      {"Single Place", find_way(cells, kSinglePlace)},
      {"Single, Cores of Both", find_way(cells, kCoresOfBoth)}};
}

std::vector<Bar> with_pipeline(const Cells& cells) {
  std::vector<Bar> bars = unpiped_bars(cells);
  const Bar piped{
      concat("Pipelining Model Parallel (split ", split_of(cells), ")"),
      find_way(cells, kStudysSchedule, split_of(cells))};
  bars.insert(bars.begin() + 2, piped);
  return bars;
}

Figure bars_figure(
    const Cells& cells, const std::vector<Bar>& bars, const char* id, const char* title) {
  Series series{.name = "", .style = Style::kBars};
  Figure figure{
      .id = id, .title = title, .x = {.label = "way"}, .y = {.label = run_axis()}, .series = {}};
  for (const Bar& bar : bars) {
    const auto point = mean_point(static_cast<double>(figure.x.categories.size()), bar.cell);
    figure.x.categories.push_back(bar.name);
    if (point) series.points.push_back(*point);
  }
  figure.series.push_back(series);
  figure.note = deviation_note(cells);
  return figure;
}

Series over_splits(const Cells& cells, const std::string& way) {
  Series series{.name = way == kMicroBatches ? "single, micro-batches" : way};
  for (const PipelineCell& cell : cells) {
    const auto point = cell.point.way == way ? mean_point(cell.point.split, &cell) : std::nullopt;
    if (point) series.points.push_back(*point);
  }
  return series;
}

Series bound_over_splits(const Cells& cells, const std::string& way) {
  Series series{.name = concat(way, ", bubble bound"), .style = Style::kDashed};
  for (const PipelineCell& cell : cells) {
    const auto seconds = cell.point.way == way ? predicted_seconds(cells, cell) : std::nullopt;
    if (seconds) series.points.push_back({static_cast<double>(cell.point.split), *seconds});
  }
  return series;
}

// What does not depend on the split size, as a line over all of them.
Series level(const Cells& cells, const char* way, const Series& over) {
  const PipelineCell* cell = find_way(cells, way);
  Series series{.name = cell == nullptr ? way : cell->name()};
  if (over.points.size() < 2) return series;
  for (const double x : {over.points.front().x, over.points.back().x}) {
    if (const auto point = mean_point(x, cell)) series.points.push_back(*point);
  }
  return series;
}

void add_if_any(Figure& figure, Series series) {
  if (!series.points.empty()) figure.series.push_back(std::move(series));
}

Figure split_figure(const Cells& cells) {
  Figure figure{
      .id = "pipeline-split-size-tradeoff",
      .title = "Pipelined over the split size",
      .x = {.label = "pipeline split size [images]"},
      .y = {.label = run_axis()},
      .series = {}};
  const Series piped = over_splits(cells, kStudysSchedule);
  add_if_any(figure, piped);
  add_if_any(figure, bound_over_splits(cells, kStudysSchedule));
  add_if_any(figure, over_splits(cells, kMicroBatches));
  add_if_any(figure, level(cells, kSinglePlace, piped));
  add_if_any(figure, level(cells, kModelParallel, piped));
  figure.note = deviation_note(cells) + " Without marks: what the bubble allows.";
  return figure;
}

Figure schedules_figure(const Cells& cells) {
  Figure figure{
      .id = "pipeline-schedules",
      .title = concat("The schedules at split size ", split_of(cells), ", and their bubble bounds"),
      .x = {.label = "schedule"},
      .y = {.label = "times as fast as a single place"},
      .series = {{"here", {}, Style::kBars}, {"bubble bound", {}, Style::kBars}}};
  std::vector<const PipelineCell*> shown{find_way(cells, kModelParallel)};
  for (const char* way : kSchedules) shown.push_back(find_way(cells, way, split_of(cells)));
  for (const PipelineCell* cell : shown) {
    if (cell == nullptr) continue;
    const auto x = static_cast<double>(figure.x.categories.size());
    const auto faster = over_single(cells, *cell);
    figure.x.categories.push_back(cell->name());
    if (faster) figure.series[0].points.push_back(point_of(x, *faster));
    figure.series[1].points.push_back({x, bound_of(*cell).speed_up});
  }
  figure.note = cells_note(cells, "Ratios of medians; bars are intervals over the rounds.");
  return figure;
}

Figure schedules_over_splits_figure(const Cells& cells) {
  Figure figure{
      .id = "pipeline-schedules-over-splits",
      .title = "The schedules over the split size, and their bubble bounds",
      .x = {.label = "pipeline split size [images]"},
      .y = {.label = run_axis()},
      .series = {}};
  for (const char* way : kSchedules) add_if_any(figure, over_splits(cells, way));
  for (const char* way : kSchedules) {
    // Its bound is that of gpipe.
    if (way != std::string("1f1b")) add_if_any(figure, bound_over_splits(cells, way));
  }
  figure.note =
      deviation_note(cells) + " Without marks: what the bubbles allow; 1f1b's is gpipe's.";
  return figure;
}

Figure memory_figure(const Cells& cells) {
  Series series{.name = "", .style = Style::kBars};
  Figure figure{
      .id = "pipeline-memory",
      .title = concat("Peak memory, schedules at split size ", split_of(cells)),
      .x = {.label = "way"},
      .y = {.label = "peak memory of the process [MiB]"},
      .series = {}};
  for (const PipelineCell& cell : cells) {
    const bool is_piped = cell.point.chunks() > 1;
    if (is_piped && cell.point.split != split_of(cells)) continue;
    const auto peak = cell.result.estimate(kPeakMemory);
    const auto x = static_cast<double>(figure.x.categories.size());
    figure.x.categories.push_back(cell.name());
    if (peak) series.points.push_back(point_of(x, *peak, 1 / kMebibyte));
  }
  figure.series.push_back(series);
  figure.note = cells_note(cells, "Medians; bars are intervals over the rounds.");
  return figure;
}

bool has_schedules_over_splits(const Cells& cells) {
  return std::any_of(cells.begin(), cells.end(), [&](const PipelineCell& cell) {
    return cell.point.way == kSchedules[1] && cell.point.split != split_of(cells);
  });
}

}  // namespace

std::vector<plot::Figure> pipeline_figures(const std::vector<PipelineCell>& cells) {
  std::vector<Figure> figures{
      bars_figure(
          cells, unpiped_bars(cells), "pipeline-mp-vs-rn", "Model parallel against a single place"),
      bars_figure(
          cells, with_pipeline(cells), "pipeline-mp-vs-rn-vs-pp",
          "Model parallel, a single place, and pipelined"),
      split_figure(cells), schedules_figure(cells)};
  if (has_schedules_over_splits(cells)) figures.push_back(schedules_over_splits_figure(cells));
  figures.push_back(memory_figure(cells));
  return figures;
}

}  // namespace lockstep::bench
