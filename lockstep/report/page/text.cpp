#include <string_view>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench::page {
namespace {

// What a program printed may stand in a cell, and goes to a terminal.
std::string shown(std::string_view text) {
  std::string line;
  for (const std::string& point : plot::code_points(text)) line += point;
  return line;
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : shown(text) + "\n"; }

}  // namespace

std::string to_text(const Table& table) {
  check_table(table);
  std::vector<std::string> heads;
  std::vector<bool> to_the_left;
  for (const Column& column : table.columns) {
    heads.push_back(shown(column.head));
    to_the_left.push_back(column.is_text);
  }
  TextTable text(std::move(heads), std::move(to_the_left));
  for (const std::vector<std::string>& row : table.rows) {
    std::vector<std::string> cells;
    for (const std::string& cell : row) cells.push_back(shown(cell));
    text.add_row(std::move(cells));
  }
  std::string notes;
  for (const std::string& note : table.notes) notes += paragraph(note);
  return paragraph(table.title) + text.text() + notes;
}

std::string to_text(const Section& section) {
  std::string text = paragraph(section.title) + paragraph(section.question);
  for (const Table& table : section.tables) text += concat('\n', to_text(table));
  const Conclusion& conclusion = section.conclusion;
  if (!conclusion.answer.empty()) text += concat('\n', paragraph(conclusion.answer));
  for (const std::string& remark : conclusion.remarks) text += concat("* ", paragraph(remark));
  return text;
}

}  // namespace lockstep::bench::page
