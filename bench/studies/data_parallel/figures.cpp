#include <algorithm>
#include <set>

#include "bench/studies/data_parallel/study.h"
#include "bench/study/figure_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::data_parallel {
namespace {

using plot::Figure;
using Style = plot::Series::Style;

constexpr const char* kWays[] = {"dp", "ddp"};

/// The cells of one model and repeat: what one picture can hold.
struct Panel {
  std::string model;
  int repeat;
  Cells cells;

  std::set<int> batches() const {
    std::set<int> batches;
    for (const Cell& cell : cells) batches.insert(cell.batch);
    return batches;
  }

  Figure figure(const std::string& what, const std::string& title, const std::string& y) const {
    return {.id = concat("data-parallel-", what, "-", model, "-r", repeat),
        .title = concat(model, repeat == 1 ? "" : concat(", set x ", repeat), ": ", title),
        .x = {.label = "places"},
        .y = {.label = y}};
  }

  // What a reader must know who sees nothing but the picture.
  std::string note(const std::string& beginning = "") const {
    const int over = least_oversubscribed(cells, &Cell::places);
    return concat(beginning, medians_note(most_rounds(cells, kSecondEpoch)),
        over == 0 ? "" : concat(" From ", over, " places on oversubscribed."),
        extrapolated_text(least_epoch_share(cells)));
  }
};

std::vector<Panel> panels(const Cells& cells) {
  std::vector<Panel> all;
  for (const Cell& cell : cells) {
    auto found = std::find_if(all.begin(), all.end(), [&](const Panel& panel) {
      return panel.model == cell.model && panel.repeat == cell.repeat;
    });
    if (found == all.end()) found = all.insert(found, Panel{cell.model, cell.repeat, {}});
    found->cells.push_back(cell);
  }
  return all;
}

std::string series_name(const std::string& what, int batch) {
  return concat(what, ", batch ", batch);
}

// A line needs two points.
void add_published(Figure& figure, const Panel& panel, bool second) {
  for (const int batch : panel.batches()) {
    const auto series = series_of(series_name("published", batch), Style::kDashed,
        std::vector{1, 2, 4}, [&](int places) -> std::optional<plot::Point> {
          const auto* found = find_published(panel.model, panel.repeat, batch, places);
          if (found == nullptr) return std::nullopt;
          return point_of(places, second ? found->second_seconds : found->first_seconds);
        });
    if (series.points.size() > 1) figure.series.push_back(series);
  }
}

Figure epoch_figure(const Panel& panel, bool second) {
  const std::string which = second ? "second" : "first";
  Figure figure =
      panel.figure(which + "-epoch", "the " + which + " epoch over places", which + " epoch [s]");
  for (const int batch : panel.batches()) {
    for (const std::string way : kWays) {
      const auto shown = select(panel.cells, [&](const Cell& cell) {
        return cell.batch == batch && (cell.way == way || cell.places == 1);
      });
      add_if_any(
          figure, series_of(series_name(way, batch), Style::kLine, shown, [&](const Cell* cell) {
            return point_of(cell->places, cell->estimate(second ? kSecondEpoch : kFirstEpoch));
          }));
    }
  }
  add_published(figure, panel, second);
  const bool published = !figure.series.empty() && figure.series.back().style == Style::kDashed;
  figure.note = panel.note(published ? "Published: DataParallel on Tesla K80 GPUs. " : "");
  return figure;
}

Figure speed_up_figure(const Panel& panel) {
  Figure figure = panel.figure(
      "speed-up", "how many times as fast as one place", "speed-up of the second epoch");
  for (const int batch : panel.batches()) {
    for (const std::string way : kWays) {
      const auto shown = select(
          panel.cells, [&](const Cell& cell) { return cell.batch == batch && cell.way == way; });
      auto series = series_of(series_name(way, batch), Style::kLine, shown,
          [&](const Cell* cell) { return point_of(cell->places, speed_up(panel.cells, *cell)); });
      if (!series.points.empty()) series.points.insert(series.points.begin(), plot::Point{1, 1});
      add_if_any(figure, series);
    }
  }
  double most = 1;
  for (const Cell& cell : panel.cells) {
    const auto published = published_speed_up(cell);
    most = std::max(most, static_cast<double>(cell.places));
    if (!published) continue;
    figure.series.push_back({series_name("published", cell.batch),
        {{1, 1}, {static_cast<double>(cell.places), *published}}, Style::kDashed});
  }
  if (most > 1)
    figure.series.push_back({"as many as places", {{1, 1}, {most, most}}, Style::kDashed});
  figure.note = panel.note();
  return figure;
}

Figure choice_figure(const Panel& panel) {
  const auto ddp = [&](const Cell& dp) { return sibling(panel.cells, dp, dp.places, "ddp"); };
  const Figure form =
      panel.figure("dp-or-ddp", "DataParallel or DistributedDataParallel", "second epoch [s]");
  const auto category = [](const Cell& dp) {
    const char* mark = dp.result.oversubscribed ? " (oversubscribed)" : "";
    return concat(dp.batch, " x ", dp.places, mark);
  };
  return BarsOf<Cell>(form.id, form.title, "batch on each place x places", form.y.label, category)
      .bars("dp", [](const Cell& dp) { return dp.estimate(kSecondEpoch); })
      .bars("ddp", [&](const Cell& dp) { return ddp(dp)->estimate(kSecondEpoch); })
      .of(select(panel.cells, [&](const Cell& dp) { return dp.way == "dp" && ddp(dp) != nullptr; }),
          panel.note());
}

}  // namespace

std::vector<Figure> figures(const Cells& cells) {
  std::vector<Figure> all;
  for (const Panel& panel : panels(cells)) {
    for (const bool second : {false, true}) all.push_back(epoch_figure(panel, second));
    all.push_back(speed_up_figure(panel));
    all.push_back(choice_figure(panel));
  }
  return all;
}

}  // namespace lockstep::bench::data_parallel
