#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/bench/page/section.h"

namespace lockstep::bench::testing {

/// Finds a table of what a study told.
inline const page::Table& table_of(const page::Section& section, const std::string& id) {
  for (const page::Table& table : section.tables) {
    if (table.id == id) return table;
  }
  throw std::runtime_error("no table " + id);
}

/// Gives all that a study concludes as one text: the answer, then the remarks.
inline std::string text_of(const page::Section& section) {
  std::string text = section.conclusion.answer;
  for (const std::string& remark : section.conclusion.remarks) text += " " + remark;
  return text;
}

/// Gives a row as one text, each cell followed by `|`.
inline std::string row_text(const std::vector<std::string>& row) {
  std::string text;
  for (const std::string& cell : row) text += cell + "|";
  return text;
}
inline std::string row_text(const page::Table& table, std::size_t row) {
  return row_text(table.rows.at(row));
}

/// Gives the row that begins with these cells, or says that there is none.
inline std::string row_text(const page::Table& table, const std::string& beginning) {
  for (const auto& row : table.rows) {
    if (row_text(row).starts_with(beginning)) return row_text(row);
  }
  return "no row " + beginning;
}

}  // namespace lockstep::bench::testing
