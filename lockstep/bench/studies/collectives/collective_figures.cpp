#include "lockstep/bench/studies/collectives/collective_figures.h"

#include <algorithm>

#include "lockstep/bench/studies/estimate_point.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plot::Figure;
using plot::Point;
using plot::Series;
using Style = Series::Style;

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;

std::string note_of(const CollectivePanel& panel) {
  int rounds = 0;
  for (const auto& each : panel.ways) {
    const auto seconds = each.second.estimate(seconds_value(panel.sizes.front()));
    rounds = std::max(rounds, seconds ? seconds->count : 0);
  }
  std::string note = concat("Medians of up to ", rounds, " rounds; bars are intervals.");
  if (panel.oversubscribed()) note += " Oversubscribed: more ranks than cores.";
  return note;
}

Figure figure_of(
    const CollectivePanel& panel, const std::string& what, const std::string& title,
    const std::string& label) {
  return {
      .id = concat("collectives-", what, "-", name_of(panel.collective), "-n", panel.ranks),
      .title = concat(panel.name(), ": ", title),
      .x = {.label = "message", .logarithmic = true, .categories = {}, .bytes = true},
      .y = {.label = label, .logarithmic = true},
      .series = {},
      .note = note_of(panel)};
}

void add_if_any(Figure& figure, Series series) {
  if (!series.points.empty()) figure.series.push_back(std::move(series));
}

// The longest time is the least bandwidth.
Point rate_of(double x, const Estimate& seconds, double scale) {
  if (seconds.count < 2) return {x, scale / seconds.median};
  return {x, scale / seconds.median, scale / seconds.high, scale / seconds.low};
}

double bus_gigabytes(const CollectivePanel& panel, std::int64_t bytes) {
  return static_cast<double>(bytes) * kGiga * bus_factor(panel.collective, panel.ranks);
}

Figure time_figure(const CollectivePanel& panel) {
  Figure figure = figure_of(panel, "time", "time of a call", "call [µs]");
  for (const CollectiveWay& way : collective_ways()) {
    Series series{way.title, {}, Style::kLine};
    for (const std::int64_t bytes : panel.sizes) {
      const auto seconds = panel.seconds(way.name, bytes);
      if (seconds) series.points.push_back(point_of(static_cast<double>(bytes), *seconds, kMicro));
    }
    add_if_any(figure, std::move(series));
  }
  Series predicted{"predicted by a copy", {}, Style::kDashed};
  for (const std::int64_t bytes : panel.sizes) {
    const auto seconds = panel.predicted_seconds(bytes);
    if (seconds) predicted.points.push_back({static_cast<double>(bytes), *seconds * kMicro});
  }
  add_if_any(figure, std::move(predicted));
  return figure;
}

Figure bus_figure(const CollectivePanel& panel) {
  Figure figure = figure_of(panel, "bus", "bus bandwidth", "bus bandwidth [GB/s]");
  for (const CollectiveWay& way : collective_ways()) {
    Series series{way.title, {}, Style::kLine};
    for (const std::int64_t bytes : panel.sizes) {
      const auto seconds = panel.seconds(way.name, bytes);
      const double scale = bus_gigabytes(panel, bytes);
      if (seconds) series.points.push_back(rate_of(static_cast<double>(bytes), *seconds, scale));
    }
    add_if_any(figure, std::move(series));
  }
  Series predicted{"predicted by a copy", {}, Style::kDashed};
  for (const std::int64_t bytes : panel.sizes) {
    const auto seconds = panel.predicted_seconds(bytes);
    const double scale = bus_gigabytes(panel, bytes);
    if (seconds) predicted.points.push_back({static_cast<double>(bytes), scale / *seconds});
  }
  add_if_any(figure, std::move(predicted));
  return figure;
}

Figure gloo_figure(const CollectivePanel& panel) {
  Figure figure =
      figure_of(panel, "against-gloo", "how many times as fast as Gloo", "Gloo's time / time");
  for (const CollectiveWay& way : collective_ways()) {
    Series series{way.title, {}, Style::kLine};
    for (const std::int64_t bytes : panel.sizes) {
      const auto ratio = panel.gloo_over(way.name, bytes);
      if (ratio) series.points.push_back(point_of(static_cast<double>(bytes), *ratio, 1));
    }
    add_if_any(figure, std::move(series));
  }
  if (figure.series.empty()) return figure;
  const auto first = static_cast<double>(panel.sizes.front());
  const auto last = static_cast<double>(panel.sizes.back());
  figure.series.push_back({"as fast as Gloo", {{first, 1}, {last, 1}}, Style::kDashed});
  return figure;
}

}  // namespace

std::vector<Figure> collective_figures(const std::vector<CollectivePanel>& panels) {
  std::vector<Figure> figures;
  for (const CollectivePanel& panel : panels) {
    figures.push_back(time_figure(panel));
    figures.push_back(bus_figure(panel));
    figures.push_back(gloo_figure(panel));
  }
  return figures;
}

}  // namespace lockstep::bench
