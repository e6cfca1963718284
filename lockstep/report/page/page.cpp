#include "lockstep/report/page/page.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/text_table.h"

namespace lockstep::page {
namespace {

// What a program printed may stand in a cell, and goes to a terminal.
std::string shown(std::string_view text) {
  std::string line;
  for (const std::string& point : plot::code_points(text)) line += point;
  return line;
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : shown(text) + "\n"; }

constexpr std::string_view kSpecial = "\\`*_[]|~";
constexpr std::string_view kSpecialAtFront = "#+-=";

// A text of one line without any meaning for Markdown.
std::string escaped(std::string_view text) {
  std::string line;
  for (const std::string& point : plot::code_points(text)) {
    const bool is_quote = point == "\"" || point == "'";
    if (kSpecial.find(point) != std::string_view::npos) line += '\\';
    line += is_quote ? point : plot::escape_markup(point);
  }
  return line;
}

std::string markdown_paragraph(const std::string& text) {
  if (text.empty()) return "";
  const bool special = kSpecialAtFront.find(text.front()) != std::string_view::npos;
  return concat(special ? "\\" : "", escaped(text), "\n\n");
}

std::string emphasised(const std::string& text) {
  return text.empty() ? "" : "**" + escaped(text) + "**\n\n";
}

std::string bullets(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += "* " + escaped(item) + '\n';
  return list.empty() ? "" : list + '\n';
}

std::string heads(const Table& table) {
  std::string names = "|";
  std::string sides = "|";
  for (const Column& column : table.columns) {
    names += ' ' + escaped(column.head) + " |";
    sides += column.is_text ? " :--- |" : " ---: |";
  }
  return names + '\n' + sides + '\n';
}

std::string figure_link(const plot::Figure& figure, const std::string& figures) {
  return "![" + escaped(figure.title) + "](" + figures + '/' + figure.id + ".svg)\n\n";
}

// Without a fence, which the text could close.
std::string as_it_is(const std::string& text) {
  std::istringstream lines(text);
  std::string block;
  for (std::string line; std::getline(lines, line);) {
    block += "    ";
    for (const std::string& point : plot::code_points(line)) block += point;
    block += '\n';
  }
  return block + '\n';
}

std::string in_short_list(const Page& page) {
  std::string list;
  for (const Section& section : page.sections) {
    const std::string& answer = section.conclusion.answer;
    if (answer.empty()) continue;
    list += "* **" + escaped(section.title) + "**: " + escaped(answer) + '\n';
  }
  return list.empty() ? "" : "## In short\n\n" + list + '\n';
}

}  // namespace

void check_table(const Table& table) {
  check(
      plot::is_name(table.id), "table '", table.id, "': an id is made of letters, digits, - and _");
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

void check_page(const Page& page) {
  std::set<std::string> tables, figures;
  const auto check_figure_id = [&](const std::string& id) {
    check(figures.insert(id).second, "page: two figures have the id '", id, "'");
  };
  for (const Section& section : page.sections) {
    for (const Table& table : section.tables) {
      check_table(table);
      check(tables.insert(table.id).second, "page: two tables have the id '", table.id, "'");
    }
    for (const plot::Figure& figure : section.figures) {
      plot::check_figure(figure);
      check_figure_id(figure.id);
    }
    for (const plot::Timeline& timeline : section.timelines) {
      plot::check_timeline(timeline);
      check_figure_id(timeline.id);
    }
    for (const plot::HeatMap& map : section.heat_maps) {
      plot::check_heat_map(map);
      check_figure_id(map.id);
    }
  }
}

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

std::string to_markdown(const Table& table) {
  check_table(table);
  std::string text = emphasised(table.title) + heads(table);
  for (const std::vector<std::string>& row : table.rows) {
    text += '|';
    for (const std::string& cell : row) text += ' ' + escaped(cell) + " |";
    text += '\n';
  }
  return text + '\n' + bullets(table.notes);
}

std::string to_markdown(const Section& section, const std::string& figures) {
  std::string text = "## " + escaped(section.title) + "\n\n" +
                     markdown_paragraph(section.question) + emphasised(section.conclusion.answer) +
                     bullets(section.conclusion.remarks);
  for (const plot::Figure& figure : section.figures) text += figure_link(figure, figures);
  for (const Table& table : section.tables) text += to_markdown(table);
  return text;
}

std::string to_markdown(const Page& page, const std::string& figures) {
  check_page(page);
  std::string text = "# " + escaped(page.title) + "\n\n" + in_short_list(page);
  for (const Section& section : page.sections) text += to_markdown(section, figures);
  if (!page.environment.empty()) text += "## Environment\n\n" + as_it_is(page.environment);
  return text;
}

}  // namespace lockstep::page
