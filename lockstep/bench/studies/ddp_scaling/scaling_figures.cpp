#include "lockstep/bench/studies/ddp_scaling/scaling_figures.h"

#include <algorithm>

#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Series;
using Style = Series::Style;

std::string category_of(const ScalingCell& cell) {
  const std::string text = concat(cell.name(), ", ", cell.started_by);
  return cell.result.oversubscribed ? text + " (oversubscribed)" : text;
}

// What a reader must know who sees nothing but the picture.
std::string note_of_picture(const std::vector<ScalingCell>& cells, std::string note) {
  int rounds = 0;
  double share = 1;
  for (const ScalingCell& cell : cells) {
    const auto run = cell.result.estimate(kRunSeconds);
    rounds = std::max(rounds, run ? run->count : 0);
    share = std::min(share, cell.epoch_share());
  }
  note += concat("Medians of up to ", rounds, " rounds; whiskers are intervals.");
  if (share < 1)
    note += concat(" Extrapolated from ", percent_text(share), " of an epoch or more.");
  return note;
}

Figure run_time_figure(const std::vector<ScalingCell>& cells) {
  Figure figure{
      .id = "ddp-scaling-run-times",
      .title = "Ten epochs of ResNet18 on CIFAR-100",
      .x = {.label = "places, nodes, launcher"},
      .y = {.label = "ten epochs [s]"},
      .series = {{"here", {}, Style::kBars}, {"predicted", {}, Style::kBars}}};
  for (const ScalingCell& cell : cells) {
    const auto x = static_cast<double>(figure.x.categories.size());
    figure.x.categories.push_back(category_of(cell));
    const auto run = cell.result.estimate(kRunSeconds);
    if (run) figure.series[0].points.push_back(point_of(x, *run));
    const auto predicted = predicted_run_seconds(cells, cell);
    if (predicted) figure.series[1].points.push_back({x, *predicted});
  }
  figure.note = note_of_picture(
      cells, "Predicted: one place's time / places, and the gradients over the link. ");
  return figure;
}

Figure speed_up_figure(const std::vector<ScalingCell>& cells) {
  Figure figure{
      .id = "ddp-scaling-speed-up",
      .title = "How many times as fast as one place",
      .x = {.label = "places, nodes, launcher"},
      .y = {.label = "speed-up"},
      .series = {{"here", {}, Style::kBars}, {"published", {}, Style::kBars}}};
  for (const ScalingCell& cell : cells) {
    if (cell.places == 1) continue;
    const auto x = static_cast<double>(figure.x.categories.size());
    figure.x.categories.push_back(category_of(cell));
    const auto faster = scaling_speed_up(cells, cell);
    if (faster) figure.series[0].points.push_back(point_of(x, *faster));
    const auto published = published_scaling(cell);
    if (published) figure.series[1].points.push_back({x, *published});
  }
  figure.note = note_of_picture(cells, "Published: DDP on TITAN RTX GPUs. ");
  return figure;
}

}  // namespace

std::vector<Figure> scaling_figures(const std::vector<ScalingCell>& cells) {
  return {run_time_figure(cells), speed_up_figure(cells)};
}

}  // namespace lockstep::bench
