#pragma once

#include <string>
#include <vector>

namespace lockstep::bench::page {

/// The head of a column.
struct Column {
  std::string head;      ///< with the unit, as in "epoch [s]"
  bool is_text = false;  ///< names and reasons are set to the left, numbers to the right
};

/// A table as data; text, Markdown and HTML are made of the same cells.
///
///     Table table{
///         .id = "epoch_times",
///         .title = "Epoch times",
///         .columns = {{"cell", true}, {"published [s]"}, {"here [s]"}},
///         .rows = {{"dp x 2", "5.3", "6.1"}, {"dp x 4", "2.9", "oversubscribed"}}};
struct Table {
  std::string id;  ///< unique in its page: letters, digits, `-` and `_`
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< a cell for each column; none may be empty
  std::vector<std::string> notes = {};         ///< lines under the table
};

/// Throws InvalidArgument, naming table, row and column, for a row of another length than the
/// columns', for an empty cell (a cell without a value says why, or `-` where none can be), for a
/// table without columns and for an id that is not a name.
void check_table(const Table& table);

}  // namespace lockstep::bench::page
