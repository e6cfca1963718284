#include "lockstep/bench/studies/throughput/throughput_figures.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/bench/studies/throughput/throughput_ratios.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Series;
using Style = Series::Style;

// Adds a category the first time, and gives its index.
double category(Figure& figure, const std::string& name) {
  auto& names = figure.x.categories;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<double>(found - names.begin());
  names.push_back(name);
  return static_cast<double>(names.size() - 1);
}

std::string note_of_figure(const std::vector<ThroughputCell>& cells, const std::string& more) {
  int rounds = 0;
  for (const ThroughputCell& cell : cells) {
    const auto estimate = cell.result.estimate(kSecondsASample);
    rounds = std::max(rounds, estimate ? estimate->count : 0);
  }
  return concat("Medians of up to ", rounds, rounds == 1 ? " round" : " rounds", ". ", more);
}

std::string mark(const ThroughputCell& cell) {
  return cell.result.oversubscribed ? " (oversubscribed)" : "";
}

std::string cell_name(const ThroughputCell& cell) {
  const std::string way = cell.way == "serial" ? "one place" : concat(cell.way, " x ", cell.places);
  const std::string half = cell.is_half() ? concat(", ", cell.precision) : "";
  return concat(way, ", batch ", cell.batch, half, mark(cell));
}

// Images of another size cost another time: they are in the tables and in the ratios.
Figure cost_figure(const std::vector<ThroughputCell>& cells) {
  Figure figure{
      .id = "throughput-ms-a-sample",
      .title = "ResNet50: what a sample of 224 x 224 costs",
      .x = {.label = "way, batch of all places"},
      .y = {.label = "a sample [ms]"},
      .series = {{"here", {}, Style::kBars}, {"predicted", {}, Style::kBars}}};
  for (const ThroughputCell& cell : cells) {
    if (one_place(cells, cell.image_size) == nullptr) continue;
    const double x = category(figure, cell_name(cell));
    const auto here = cell.result.estimate(kSecondsASample);
    const auto predicted = predicted_seconds(cells, cell);
    if (here) figure.series[0].points.push_back(point_of(x, *here, 1000));
    if (predicted) figure.series[1].points.push_back({x, 1000 * *predicted});
  }
  figure.note = note_of_figure(
      cells, "Predicted: one place's time shared by the cores of all, nothing lost by spreading.");
  return figure;
}

std::string ratio_category(const ThroughputRatio& ratio) {
  using Change = ThroughputRatio::Change;
  const bool small = ratio.cell->image_size != kStudyImageSize;
  const std::string size = small ? concat(", ", ratio.cell->image_size, " px") : "";
  if (ratio.change == Change::kPrecision) return concat("float32 / ", ratio.cell->precision, size);
  return concat(
      ratio.change == Change::kPlaces ? "one place / places, same batch"
                                      : "one place / places, large batch",
      mark(*ratio.cell));
}

Figure ratio_figure(const std::vector<ThroughputCell>& cells) {
  Figure figure{
      .id = "throughput-ratios",
      .title = "How many times as fast a sample is: here, predicted, published",
      .x = {.label = "seconds a sample of the first / of the second"},
      .y = {.label = "times as fast"},
      .series = {
          {"dp here", {}, Style::kBars},
          {"ddp here", {}, Style::kBars},
          {"predicted", {}, Style::kBars},
          {"published, dp", {}, Style::kBars}}};
  for (const ThroughputRatio& ratio : throughput_ratios(cells)) {
    const double x = category(figure, ratio_category(ratio));
    const bool is_dp = ratio.cell->way == "dp";
    if (ratio.measured)
      figure.series[is_dp ? 0 : 1].points.push_back(point_of(x, *ratio.measured, 1));
    if (is_dp && ratio.predicted) figure.series[2].points.push_back({x, *ratio.predicted});
    if (ratio.published) figure.series[3].points.push_back({x, *ratio.published});
  }
  std::erase_if(figure.series, [](const Series& series) { return series.points.empty(); });
  figure.note = note_of_figure(
      cells, "Published: four V100 GPUs, batches of 128 and 512, half precision as float16.");
  return figure;
}

}  // namespace

std::vector<Figure> throughput_figures(const std::vector<ThroughputCell>& cells) {
  return {cost_figure(cells), ratio_figure(cells)};
}

}  // namespace lockstep::bench
