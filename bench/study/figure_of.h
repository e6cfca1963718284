#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics/median.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench {

/// Returns a value as a point of a figure, in a unit of which `factor` make one of its own; an
/// estimate with its interval, which one sample does not have.
plot::Point point_of(double x, const Estimate& estimate, double factor = 1);
std::optional<plot::Point> point_of(
    double x, const std::optional<Estimate>& estimate, double factor = 1);
std::optional<plot::Point> point_of(
    double x, const std::optional<double>& value, double factor = 1);
inline std::optional<plot::Point> point_of(
    double, const std::optional<plot::Point>& point, double) {
  return point;
}

/// Makes a series of the points that a function finds in rows, or in pointers to them.
template <class Rows, class PointOf>
plot::Series series_of(
    std::string name, plot::Series::Style style, const Rows& rows, PointOf point) {
  plot::Series series{.name = std::move(name), .points = {}, .style = style};
  for (const auto& row : rows) {
    if (const std::optional<plot::Point> found = point(row)) series.points.push_back(*found);
  }
  return series;
}

/// Adds a series unless it has no points.
void add_if_any(plot::Figure& figure, plot::Series series);

/// Begins the note below a figure: `Medians of up to 3 rounds; bars are intervals.`
std::string medians_note(int rounds);

/// Says that times are extrapolated; empty for 1.
std::string extrapolated_text(double epoch_share);

/// A figure of bars: a category for each row, a series for each value.
///
///     BarsOf<Cell>("id", "title", "places", "epoch [s]", &Cell::name)
///         .bars("here", run_seconds)
///         .bars("predicted", predicted)
///         .of(cells, "note");
///
/// A value is an optional number, Estimate or Point.
template <class Row>
class BarsOf {
 public:
  template <class Category>
  BarsOf(std::string id, std::string title, std::string x, std::string y, Category category)
      : figure_{.id = std::move(id),
            .title = std::move(title),
            .x = {.label = std::move(x)},
            .y = {.label = std::move(y)}},
        category_([category](const Row& row) { return std::invoke(category, row); }) {}

  template <class Value>
  BarsOf& bars(std::string name, Value value, double factor = 1) {
    figure_.series.push_back({std::move(name), {}, plot::Series::Style::kBars});
    points_.push_back([value, factor](double x, const Row& row) {
      auto point = point_of(x, std::invoke(value, row), factor);
      if (point) point->x = x;
      return point;
    });
    return *this;
  }

  /// Makes the figure of these rows, or of pointers to them; rows of one category share its place.
  template <class Rows>
  plot::Figure of(const Rows& rows, std::string note) const {
    plot::Figure figure = figure_;
    figure.note = std::move(note);
    for (const auto& row : rows) add(figure, row_of(row));
    return figure;
  }

 private:
  static const Row& row_of(const Row& row) { return row; }
  static const Row& row_of(const Row* row) { return *row; }

  void add(plot::Figure& figure, const Row& row) const {
    const std::string name = category_(row);
    auto& names = figure.x.categories;
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) found = names.insert(names.end(), name);
    const auto x = static_cast<double>(found - names.begin());
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (const auto point = points_[i](x, row)) figure.series[i].points.push_back(*point);
    }
  }

  plot::Figure figure_;
  std::function<std::string(const Row&)> category_;
  std::vector<std::function<std::optional<plot::Point>(double, const Row&)>> points_;
};

}  // namespace lockstep::bench
