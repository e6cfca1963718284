#include "lockstep/bench/plot/bars.h"

#include <algorithm>
#include <string>

#include "lockstep/bench/plot/text_width.h"
#include "lockstep/bench/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

constexpr double kShare = 0.8;
constexpr double kWidest = 56;
constexpr double kBetween = 1.5;
constexpr double kValueGap = 5;

bool is_bars(const Series& series) { return series.style == Series::Style::kBars; }

Bar placed(const Point& point, double left, double width, const Scale& x, const Scale& y) {
  Bar bar;
  bar.left = x.place(point.x) + left + kBetween / 2;
  bar.right = x.place(point.x) + left + width - kBetween / 2;
  bar.end = y.place(point.y);
  bar.base = y.place(0);
  bar.value = value_text(point.y);
  bar.value_y = point.y < 0 ? y.place(point.low.value_or(point.y)) + kValueGap + kValueSize * 0.8
                            : y.place(point.high.value_or(point.y)) - kValueGap;
  return bar;
}

bool values_fit(const Figure& figure, const std::vector<Bar>& bars, double width) {
  return std::all_of(figure.series.begin(), figure.series.end(), is_bars) &&
         std::all_of(bars.begin(), bars.end(),
             [&](const Bar& bar) { return text_width(bar.value, {kValueSize}) + 2 <= width; });
}

}  // namespace

std::vector<Bar> place_bars(const Figure& figure, const Scale& x, const Scale& y) {
  const auto count = std::count_if(figure.series.begin(), figure.series.end(), is_bars);
  if (count == 0) return {};
  const double slot = x.place(1) - x.place(0);
  const double width = std::min(slot * kShare / static_cast<double>(count), kWidest);
  double left = -width * static_cast<double>(count) / 2;
  std::vector<Bar> bars;
  for (std::size_t series = 0; series < figure.series.size(); ++series) {
    if (!is_bars(figure.series[series])) continue;
    const std::vector<Point>& points = figure.series[series].points;
    for (std::size_t point = 0; point < points.size(); ++point) {
      Bar bar = placed(points[point], left, width, x, y);
      bar.series = series;
      bar.point = point;
      bars.push_back(std::move(bar));
    }
    left += width;
  }
  // A bar alone in its category has all of the category for its value.
  if (!values_fit(figure, bars, count == 1 ? slot : width)) {
    for (Bar& bar : bars) bar.value.clear();
  }
  return bars;
}

}  // namespace lockstep::bench::plot
