#include "lockstep/bench/studies/data_parallel/epoch_figures.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/bench/studies/data_parallel/published_epochs.h"
#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Point;
using plot::Series;
using Style = Series::Style;

constexpr const char* kWays[] = {"dp", "ddp"};

/// Is the cells of one model and repeat: what one picture can hold.
struct Panel {
  std::string model;
  int repeat;
  std::vector<EpochCell> cells;

  std::string name() const { return repeat == 1 ? model : concat(model, ", set x ", repeat); }
  std::string id(const std::string& what) const {
    return concat("data-parallel-", what, "-", model, "-r", repeat);
  }
  std::set<int> batches() const {
    std::set<int> batches;
    for (const EpochCell& cell : cells) batches.insert(cell.batch);
    return batches;
  }
};

std::vector<Panel> panels(const std::vector<EpochCell>& cells) {
  std::vector<Panel> all;
  for (const EpochCell& cell : cells) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Panel& panel) {
      return panel.model == cell.model && panel.repeat == cell.repeat;
    });
    Panel& panel =
        found != all.end() ? *found : all.emplace_back(Panel{cell.model, cell.repeat, {}});
    panel.cells.push_back(cell);
  }
  return all;
}

// What a reader must know who sees nothing but the picture.
std::string note_of_panel(const Panel& panel, std::string note) {
  int rounds = 0;
  const EpochCell* over = nullptr;
  double share = 1;
  for (const EpochCell& cell : panel.cells) {
    const auto second = cell.result.estimate(kSecondEpoch);
    rounds = std::max(rounds, second ? second->count : 0);
    share = std::min(share, cell.epoch_share());
    if (cell.result.oversubscribed && (over == nullptr || cell.places < over->places)) over = &cell;
  }
  note += concat("Medians of up to ", rounds, " rounds; bars are intervals.");
  if (over != nullptr) note += concat(" From ", over->places, " places on oversubscribed.");
  if (share < 1)
    note += concat(" Extrapolated from ", percent_text(share), " of an epoch or more.");
  return note;
}

Series over_places(const Panel& panel, int batch, const std::string& way, const char* value) {
  Series series{concat(way, ", batch ", batch), {}, Style::kLine};
  for (const EpochCell& cell : panel.cells) {
    if (cell.batch != batch || (cell.way != way && cell.places > 1)) continue;
    const auto estimate = cell.result.estimate(value);
    if (estimate) series.points.push_back(point_of(cell.places, *estimate));
  }
  return series;
}

std::optional<double> seconds_of(const PublishedEpochs& epochs, const char* value) {
  return value == std::string(kFirstEpoch) ? std::optional(epochs.first_seconds)
                                           : epochs.second_seconds;
}

// Published times of K80s; a line needs two.
void add_published(Figure& figure, const Panel& panel, const char* value) {
  for (const int batch : panel.batches()) {
    Series series{concat("published, batch ", batch), {}, Style::kDashed};
    for (const int places : {1, 2, 4}) {
      const auto* epochs = find_published(panel.model, panel.repeat, batch, places);
      const auto seconds = epochs == nullptr ? std::nullopt : seconds_of(*epochs, value);
      if (seconds) series.points.push_back({static_cast<double>(places), *seconds});
    }
    if (series.points.size() > 1) figure.series.push_back(series);
  }
}

void add_if_any(Figure& figure, Series series) {
  if (!series.points.empty()) figure.series.push_back(std::move(series));
}

Figure epoch_figure(const Panel& panel, const char* value) {
  const std::string which = value == std::string(kFirstEpoch) ? "first" : "second";
  Figure figure{
      .id = panel.id(which + "-epoch"),
      .title = concat(panel.name(), ": the ", which, " epoch over places"),
      .x = {.label = "places"},
      .y = {.label = which + " epoch [s]"},
      .series = {}};
  for (const int batch : panel.batches()) {
    for (const char* way : kWays) add_if_any(figure, over_places(panel, batch, way, value));
  }
  add_published(figure, panel, value);
  const bool published = !figure.series.empty() && figure.series.back().style == Style::kDashed;
  figure.note =
      note_of_panel(panel, published ? "Published: DataParallel on Tesla K80 GPUs. " : "");
  return figure;
}

Series speed_ups(const Panel& panel, int batch, const std::string& way) {
  Series series{concat(way, ", batch ", batch), {}, Style::kLine};
  for (const EpochCell& cell : panel.cells) {
    if (cell.batch != batch || cell.way != way) continue;
    const auto faster = speed_up(panel.cells, cell);
    if (faster) series.points.push_back(point_of(cell.places, *faster));
  }
  if (!series.points.empty()) series.points.insert(series.points.begin(), Point{1, 1});
  return series;
}

void add_published_speed_ups(Figure& figure, const Panel& panel) {
  for (const EpochCell& cell : panel.cells) {
    const auto published = cell.way == "dp" ? published_speed_up(cell) : std::nullopt;
    if (!published) continue;
    figure.series.push_back(
        {concat("published, batch ", cell.batch),
         {{1, 1}, {static_cast<double>(cell.places), *published}},
         Style::kDashed});
  }
}

Figure speed_up_figure(const Panel& panel) {
  Figure figure{
      .id = panel.id("speed-up"),
      .title = concat(panel.name(), ": how many times as fast as one place"),
      .x = {.label = "places"},
      .y = {.label = "speed-up of the second epoch"},
      .series = {}};
  double most = 1;
  for (const EpochCell& cell : panel.cells) most = std::max(most, static_cast<double>(cell.places));
  for (const int batch : panel.batches()) {
    for (const char* way : kWays) add_if_any(figure, speed_ups(panel, batch, way));
  }
  add_published_speed_ups(figure, panel);
  if (most > 1)
    figure.series.push_back({"as many as places", {{1, 1}, {most, most}}, Style::kDashed});
  figure.note = note_of_panel(panel, "");
  return figure;
}

Figure dp_or_ddp_figure(const Panel& panel) {
  Figure figure{
      .id = panel.id("dp-or-ddp"),
      .title = concat(panel.name(), ": DataParallel or DistributedDataParallel"),
      .x = {.label = "batch on each place x places"},
      .y = {.label = "second epoch [s]"},
      .series = {{"dp", {}, Style::kBars}, {"ddp", {}, Style::kBars}}};
  for (const EpochCell& dp : panel.cells) {
    const EpochCell* ddp = sibling(panel.cells, dp, dp.places, "ddp");
    if (dp.way != "dp" || ddp == nullptr) continue;
    const auto x = static_cast<double>(figure.x.categories.size());
    figure.x.categories.push_back(
        concat(dp.batch, " x ", dp.places, dp.result.oversubscribed ? " (oversubscribed)" : ""));
    const auto left = dp.result.estimate(kSecondEpoch), right = ddp->result.estimate(kSecondEpoch);
    if (left) figure.series[0].points.push_back(point_of(x, *left));
    if (right) figure.series[1].points.push_back(point_of(x, *right));
  }
  figure.note = note_of_panel(panel, "");
  return figure;
}

}  // namespace

std::vector<Figure> epoch_figures(const std::vector<EpochCell>& cells) {
  std::vector<Figure> figures;
  for (const Panel& panel : panels(cells)) {
    figures.push_back(epoch_figure(panel, kFirstEpoch));
    figures.push_back(epoch_figure(panel, kSecondEpoch));
    figures.push_back(speed_up_figure(panel));
    figures.push_back(dp_or_ddp_figure(panel));
  }
  return figures;
}

}  // namespace lockstep::bench
