#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/statistics/estimate_text.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// Stands in a table's cell that has no value.
inline constexpr const char* kNone = "-";

/// Return the text of a table's cell; of an estimate its median.
std::string cell_text(const std::string& text, NumberText number = nullptr);
std::string cell_text(int value, NumberText number = nullptr);
std::string cell_text(const std::optional<double>& value, NumberText number);
std::string cell_text(const std::optional<Estimate>& estimate, NumberText number);

/// A table whose columns are declared one by one: what is above a column, and how its value is
/// found in a row.
///
///     TableOf<Cell>("ddp-scaling-epochs", "Epochs")
///         .name("started by", &Cell::launcher)
///         .number("places", &Cell::places)
///         .estimate("here [s]", "interval [s]", run_seconds)
///         .of(cells);
///
/// A value is a member of a row, or what a function makes of it: a text, an int, an optional number
/// or an optional Estimate.
template <class Row>
class TableOf {
 public:
  TableOf(std::string id, std::string title)
      : table_{.id = std::move(id), .title = std::move(title), .columns = {}, .rows = {}} {}

  /// Adds a column of names or remarks, set to the left.
  template <class Value>
  TableOf& name(std::string head, Value value) {
    return add({std::move(head), true},
        [value](const Row& row) { return cell_text(std::invoke(value, row)); });
  }

  /// Adds a column of numbers.
  template <class Value>
  TableOf& number(std::string head, Value value, NumberText text = seconds_text) {
    return add({std::move(head)},
        [value, text](const Row& row) { return cell_text(std::invoke(value, row), text); });
  }

  /// Adds two columns: the median of an estimate, and its interval.
  template <class Value>
  TableOf& estimate(
      std::string head, std::string interval, Value value, NumberText text = seconds_text) {
    number(std::move(head), value, text);
    return add({std::move(interval)}, [value, text](const Row& row) -> std::string {
      const std::optional<Estimate> found = std::invoke(value, row);
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
  static const Row& row_of(const Row& row) { return row; }
  static const Row& row_of(const Row* row) { return *row; }

  TableOf& add(page::Column column, std::function<std::string(const Row&)> text) {
    table_.columns.push_back(std::move(column));
    texts_.push_back(std::move(text));
    return *this;
  }

  page::Table table_;  // without rows
  std::vector<std::function<std::string(const Row&)>> texts_;
};

}  // namespace lockstep::bench
