#include "lockstep/bench/studies/scale_out/node_figures.h"

#include <algorithm>
#include <string>

#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/published_nodes.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

using plot::Figure;
using plot::Point;
using plot::Series;
using Style = Series::Style;

/// Says in which unit the time of a curve is drawn.
struct TimeUnit {
  double seconds;
  std::string name;
};

TimeUnit unit_for(double budget_seconds) {
  return budget_seconds >= 10 * kMinute ? TimeUnit{kMinute, "min"} : TimeUnit{1, "s"};
}

double budget_of(const std::vector<NodeCell>& cells) {
  return cells.empty() ? 1 : cells.front().budget_seconds;
}

// What a reader must know who sees nothing but the picture.
std::string common_note(const std::vector<NodeCell>& cells) {
  int rounds = 0;
  const NodeCell* over = nullptr;
  for (const NodeCell& cell : cells) {
    const auto steps = cell.result.estimate("steps");
    rounds = std::max(rounds, steps ? steps->count : 0);
    if (cell.result.oversubscribed && (over == nullptr || cell.nodes < over->nodes)) over = &cell;
  }
  const std::string note =
      concat("Medians of up to ", rounds, rounds == 1 ? " round." : " rounds.");
  return over == nullptr ? note : concat(note, " From ", over->nodes, " nodes on oversubscribed.");
}

Series curve(const NodeCell& cell, std::string (*name)(int), const TimeUnit& unit) {
  Series series{cell.name(), {}, Style::kLine};
  for (const int percent : curve_percents()) {
    const auto loss = cell.median(name(percent));
    if (!loss) continue;
    const double time = cell.budget_seconds * percent / 100 / unit.seconds;
    series.points.push_back({.x = time, .y = *loss, .hollow = cell.result.oversubscribed});
  }
  return series;
}

Figure loss_figure(
    const std::vector<NodeCell>& cells, const std::string& id, const std::string& title,
    const std::string& label, std::string (*name)(int)) {
  const TimeUnit unit = unit_for(budget_of(cells));
  Figure figure{
      .id = id,
      .title = title,
      .x = {.label = concat("training time [", unit.name, "]")},
      .y = {.label = label},
      .series = {}};
  for (const NodeCell& cell : cells) {
    Series series = curve(cell, name, unit);
    if (!series.points.empty()) figure.series.push_back(std::move(series));
  }
  figure.note = common_note(cells);
  return figure;
}

Point point_of(const NodeCell& cell, const Estimate& estimate) {
  Point point = bench::point_of(cell.nodes, estimate);
  point.hollow = cell.result.oversubscribed;
  return point;
}

void add_measured(Figure& figure, const std::vector<NodeCell>& cells) {
  Series here{"here", {}, Style::kLine}, predicted{"predicted", {}, Style::kDashed};
  for (const NodeCell& cell : cells) {
    if (cell.killed) continue;
    const auto nodes = static_cast<double>(cell.nodes);
    const auto measured = efficiency(cells, cell);
    const auto bound = predicted_efficiency(cells, cell);
    if (measured) here.points.push_back(point_of(cell, *measured));
    if (cell.nodes == 1 && cell.median(kEpochSeconds)) here.points.push_back({1, 1});
    if (bound) predicted.points.push_back({nodes, *bound});
  }
  for (Series* series : {&here, &predicted}) {
    if (!series->points.empty()) figure.series.push_back(std::move(*series));
  }
}

Figure efficiency_figure(const std::vector<NodeCell>& cells) {
  Figure figure{
      .id = "scale-out-efficiency",
      .title = "Scaling efficiency over nodes",
      .x = {.label = "nodes"},
      .y = {.label = "efficiency"},
      .series = {}};
  add_measured(figure, cells);
  Series published{"published", {}, Style::kDashed};
  for (const PublishedNodes& each : published_nodes()) {
    published.points.push_back({static_cast<double>(each.nodes), each.efficiency});
  }
  figure.series.push_back(published);
  figure.note = concat(
      common_note(cells),
      " Bars are intervals. Predicted: computing and sending, one after the other. Published: AWS "
      "g4dn.2xlarge nodes.");
  return figure;
}

}  // namespace

std::vector<Figure> node_figures(const std::vector<NodeCell>& cells) {
  return {
      loss_figure(
          cells, "scale-out-train-loss", "Training loss over time, for each number of nodes",
          "training loss", train_loss_name),
      loss_figure(
          cells, "scale-out-val-loss", "Validation loss over time, for each number of nodes",
          "validation loss", val_loss_name),
      efficiency_figure(cells)};
}

}  // namespace lockstep::bench::scale_out
