#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/experiment/study.h"
#include "bench/statistics/estimate_text.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench {

/// Joins the parts of a note by semicolons; empty ones are left out.
std::string noted(std::vector<std::string> parts);

/// Returns the part of an epoch that a cell's times are extrapolated from, or 1.
double epoch_share(const CellResult& result);

/// Returns what a reader must know about a cell's value: that it is oversubscribed, samples that
/// failed, outliers, from what part of an epoch it is extrapolated; or why there is none, a long
/// reason cut. Empty if nothing.
std::string cell_note(const CellResult& result, const std::string& value);

/// Returns the reasons that cell_note() cuts, in full: a line for each cell.
std::vector<std::string> whole_reasons(const std::vector<CellResult>& results);

/// The text of a table's cell without a value.
inline constexpr const char* kNone = "-";

/// Return the text of a table's cell; of an estimate its median.
std::string cell_text(const std::string& text, NumberText number = nullptr);
std::string cell_text(int value, NumberText number = nullptr);
std::string cell_text(double value, NumberText number);
std::string cell_text(const std::optional<double>& value, NumberText number);
std::string cell_text(const std::optional<Estimate>& estimate, NumberText number);

/// Returns the row, also of a pointer to it.
const auto& row_of(const auto& row) {
  if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(row)>>) {
    return *row;
  } else {
    return row;
  }
}

/// Finds a value in a row: a member, what a function makes of the row, or the estimate of this
/// name.
template <class Row, class Value>
auto value_in(const Row& row, const Value& value) {
  if constexpr (std::is_same_v<Value, const char*>) {
    return row.estimate(value);
  } else {
    return std::invoke(value, row);
  }
}

/// A table whose columns are declared one by one: its head, and how its value is found in a row.
///
///     TableOf<Cell>("ddp-scaling-epochs", "Epochs")
///         .name("started by", &Cell::launcher)
///         .number("places", &Cell::places)
///         .estimate("here [s]", "interval [s]", run_seconds)
///         .of(cells);
///
/// A value is what value_in() finds: a text, an int, a number, an optional one or an optional
/// Estimate.
template <class Row>
class TableOf {
 public:
  TableOf(std::string id, std::string title)
      : table_{.id = std::move(id), .title = std::move(title), .columns = {}, .rows = {}} {}

  /// Adds a column of names or remarks, set to the left.
  template <class Value>
  TableOf& name(std::string head, Value value) {
    return add({std::move(head), true},
        [value](const Row& row) { return cell_text(value_in(row, value)); });
  }

  /// Adds a column of numbers.
  template <class Value>
  TableOf& number(std::string head, Value value, NumberText text = seconds_text) {
    return add({std::move(head)},
        [value, text](const Row& row) { return cell_text(value_in(row, value), text); });
  }

  /// Adds the column of what a reader must know about this value of a row, which is a cell.
  TableOf& note(const char* value) {
    return name("note", [value](const Row& row) { return cell_note(row.result, value); });
  }

  /// Adds two columns: the median of an estimate, and its interval.
  template <class Value>
  TableOf& estimate(
      std::string head, std::string interval, Value value, NumberText text = seconds_text) {
    number(std::move(head), value, text);
    return add({std::move(interval)}, [value, text](const Row& row) -> std::string {
      const std::optional<Estimate> found = value_in(row, value);
      return found ? interval_text(*found, text) : kNone;
    });
  }

  /// Adds lines below the table; empty ones are left out.
  TableOf& notes(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      if (!line.empty()) table_.notes.push_back(line);
    }
    return *this;
  }

  /// Makes the table of these rows, or of pointers to them.
  template <class Rows>
  page::Table of(const Rows& rows) const {
    page::Table table = table_;
    for (const auto& row : rows) {
      auto& texts = table.rows.emplace_back();
      for (const auto& text : texts_) texts.push_back(text(row_of(row)));
    }
    return table;
  }

 private:
  TableOf& add(page::Column column, std::function<std::string(const Row&)> text) {
    table_.columns.push_back(std::move(column));
    texts_.push_back(std::move(text));
    return *this;
  }

  page::Table table_;  // without rows
  std::vector<std::function<std::string(const Row&)>> texts_;
};

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

/// Marks a category whose places had to share cores; else empty.
std::string oversubscribed_mark(const CellResult& result);

/// A figure of bars: a category for each row, a series for each value.
///
///     BarsOf<Cell>("id", "title", "places", "epoch [s]", &Cell::name)
///         .bars("here", run_seconds)
///         .bars("predicted", predicted)
///         .of(cells, "note");
///
/// A value is what value_in() finds: an optional number, Estimate or Point.
template <class Row>
class BarsOf {
 public:
  BarsOf(std::string id, std::string title, std::string x, std::string y,
      std::function<std::string(const Row&)> category)
      : figure_{.id = std::move(id),
            .title = std::move(title),
            .x = {.label = std::move(x)},
            .y = {.label = std::move(y)}},
        category_(std::move(category)) {}

  template <class Value>
  BarsOf& bars(std::string name, Value value, double factor = 1) {
    figure_.series.push_back({std::move(name), {}, plot::Series::Style::kBars});
    points_.push_back([value, factor](double x, const Row& row) {
      auto point = point_of(x, value_in(row, value), factor);
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
  void add(plot::Figure& figure, const Row& row) const {
    const std::string name = category_(row);
    auto& names = figure.x.categories;
    auto found = std::ranges::find(names, name);
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

/// Joins the notes of two cells of which `dp` and `ddp` stand in one row.
std::string note_of_both(const std::string& dp, const std::string& ddp);

/// Explains the mark `oversubscribed`: more of these than cores. Empty if no cell has it.
std::string oversubscribed_note(bool any, const std::string& places = "places");

/// Returns the id of a study's table of samples: too long for a terminal.
std::string sample_table_id(const std::string& study);

/// The name of a sample's value and the head of its column.
using SampleColumn = std::pair<std::string, std::string>;

/// Lists every sample of a study with these values, how long it took, the calibration before it,
/// what share of the cores others used meanwhile, and what was odd about it.
page::Table sample_table(const std::string& study, const std::vector<CellResult>& results,
    const std::vector<SampleColumn>& values);

}  // namespace lockstep::bench
