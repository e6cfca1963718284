#include "lockstep/report/text_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr const char* kNothing = "-";

// In characters: of those in UTF-8 only the first byte counts.
std::size_t letters(const std::string& cell) {
  return static_cast<std::size_t>(
      std::count_if(cell.begin(), cell.end(), [](char byte) { return (byte & '\xc0') != '\x80'; }));
}

void append(std::string& line, const std::string& cell, std::size_t width, bool left) {
  const std::string space(width - std::min(width, letters(cell)), ' ');
  if (!line.empty()) line += "  ";
  line += left ? cell + space : space + cell;
}

}  // namespace

TextTable::TextTable(std::vector<std::string> heads, std::vector<bool> to_the_left)
    : to_the_left_(std::move(to_the_left)) {
  to_the_left_.resize(heads.size());
  rows_.push_back({std::move(heads), ""});
}

void TextTable::add_row(std::vector<std::string> cells) {
  check(cells.size() == rows_.front().cells.size(), "table: a row of ", cells.size(),
      " cells under ", rows_.front().cells.size(), " heads");
  rows_.push_back({std::move(cells), ""});
}

void TextTable::add_line(const std::string& line) { rows_.push_back({{}, line}); }

bool TextTable::is_shown(std::size_t column) const {
  bool has_rows = false;
  for (std::size_t row = 1; row < rows_.size(); ++row) {
    if (rows_[row].cells.empty()) continue;
    has_rows = true;
    if (rows_[row].cells[column] != kNothing) return true;
  }
  return !has_rows;
}

std::size_t TextTable::width(std::size_t column) const {
  std::size_t widest = 0;
  for (const Row& row : rows_) {
    if (!row.cells.empty()) widest = std::max(widest, letters(row.cells[column]));
  }
  return widest;
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths;  // 0: not shown
  for (std::size_t column = 0; column < rows_.front().cells.size(); ++column) {
    widths.push_back(is_shown(column) ? width(column) : 0);
  }
  std::string text;
  for (const Row& row : rows_) {
    std::string line = row.line;
    for (std::size_t column = 0; column < row.cells.size(); ++column) {
      if (widths[column] == 0) continue;
      append(line, row.cells[column], widths[column], to_the_left_[column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string cell(const std::optional<double>& value, int digits) {
  if (!value) return kNothing;
  if (std::isnan(*value)) return "nan";
  const double size = std::abs(*value);
  char text[64];
  // What a column cannot hold is written with an exponent.
  const bool plain = size < 1e9 && (size == 0 || size >= std::pow(10, -digits));
  std::snprintf(text, sizeof text, plain ? "%.*f" : "%.*g", plain ? digits : 3, *value);
  return text;
}

std::string short_cell(const std::optional<double>& value) {
  if (!value) return kNothing;
  char text[64];
  const double size = std::abs(*value);
  const bool is_whole = size >= 1e4 && size < 1e9;
  std::snprintf(text, sizeof text, is_whole ? "%.0f" : "%.4g", *value);
  return text;
}

}  // namespace lockstep
