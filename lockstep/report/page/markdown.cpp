#include <cstddef>
#include <sstream>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/text_width.h"

namespace lockstep::bench::page {
namespace {

constexpr std::string_view kSpecial = "\\`*_[]|~";
constexpr std::string_view kSpecialAtFront = "#+-=";

// A text of one line without any meaning for Markdown.
std::string escaped(std::string_view text) {
  std::string line;
  for (const std::string& point : plot::code_points(text)) {
    if (point == "&") {
      line += "&amp;";
    } else if (point == "<") {
      line += "&lt;";
    } else if (point == ">") {
      line += "&gt;";
    } else {
      if (kSpecial.find(point) != std::string_view::npos) line += '\\';
      line += point;
    }
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

}  // namespace lockstep::bench::page
