#include "lockstep/report/page/table.h"

#include <algorithm>
#include <cstddef>

#include "lockstep/core/error.h"

namespace lockstep::bench::page {
namespace {

bool is_name(const std::string& id) {
  const auto fits = [](char letter) {
    return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') ||
           ('0' <= letter && letter <= '9') || letter == '-' || letter == '_';
  };
  return !id.empty() && std::all_of(id.begin(), id.end(), fits);
}

}  // namespace

void check_table(const Table& table) {
  check(is_name(table.id), "table '", table.id, "': an id is made of letters, digits, - and _");
  check(!table.columns.empty(), "table '", table.id, "': no columns");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::vector<std::string>& cells = table.rows[row];
    check(cells.size() == table.columns.size(), "table '", table.id, "', row ", row, ": ",
        cells.size(), " cells under ", table.columns.size(), " columns");
    for (std::size_t column = 0; column < cells.size(); ++column) {
      check(cells[column].find_first_not_of(" \t\n") != std::string::npos, "table '", table.id,
          "', row ", row, ", column '", table.columns[column].head,
          "': the cell is empty; write why it has no value");
    }
  }
}

}  // namespace lockstep::bench::page
