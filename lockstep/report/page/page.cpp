#include "lockstep/report/page/page.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/plot/svg.h"
#include "lockstep/report/text_table.h"

namespace lockstep::page {
namespace {

using plot::escape_markup;

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
    line += is_quote ? point : escape_markup(point);
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
  for (std::string line; std::getline(lines, line);) block += "    " + shown(line) + '\n';
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

// The parts of a page in HTML.

std::string element(const std::string& name, const std::string& text) {
  return text.empty() ? "" : "<" + name + ">" + escape_markup(text) + "</" + name + ">\n";
}

std::string html_paragraph(const char* kind, const std::string& text) {
  return text.empty() ? ""
                      : std::string("<p class=\"") + kind + "\">" + escape_markup(text) + "</p>\n";
}

constexpr const char* kHtmlRules = R"(
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: 'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 75rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; box-sizing: border-box; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; padding-top: 1rem; border-top: 1px solid var(--grid); }
a { color: var(--link); }
p { max-width: 45rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
li { max-width: 45rem; margin: 0.3rem 0; overflow-wrap: anywhere; }
.question, .note { color: var(--muted); }
.note { font-size: 0.85rem; }
.conclusion { font-weight: bold; }
.figure { margin: 1.5rem 0; max-width: 720px; overflow-x: auto; }
.figure svg { max-width: 100%; min-width: 40rem; height: auto; }
svg { display: block; box-sizing: border-box; border: 1px solid var(--grid); border-radius: 4px; }
.table { overflow-x: auto; margin: 1.5rem 0 0.5rem; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.4rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid var(--grid); }
th { border-bottom: 2px solid var(--muted); vertical-align: bottom; }
.text { text-align: left; }
@media (max-width: 40rem) { td:not(.text) { white-space: nowrap; } }
tbody tr:hover { background: var(--grid); }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0; }
.picture { margin: 0; min-width: 8.5rem; max-width: 100%; font-size: 0.85rem; }
.looks { display: flex; flex-wrap: wrap; gap: 0.25rem; }
.picture img { display: block; width: 8.5rem; height: 8.5rem; object-fit: contain;
  image-rendering: pixelated; border: 1px solid var(--grid); border-radius: 4px; }
.picture .large { image-rendering: auto; }
.looks img:first-child:not(:last-child) { margin-right: 0.5rem; outline: 2px solid var(--link); }
figcaption { width: 0; min-width: 100%; overflow-wrap: anywhere; }
.meter { display: block; width: 12rem; height: 0.7rem; margin-top: 0.3rem; }
.meter i { display: block; height: 100%; min-width: 1px; background: var(--link); }
pre { overflow-x: auto; font-size: 0.8rem; padding: 0.8rem; border: 1px solid var(--grid);
  border-radius: 4px; }
@media print {
  main { max-width: none; padding: 0; }
  .figure, tr { break-inside: avoid; }
  h2, caption { break-after: avoid; }
  .figure, .table, pre { overflow: visible; }
  .figure svg { min-width: 0; }
  pre { white-space: pre-wrap; }
}
)";

std::string variables(const plot::Surface& surface, const std::string& link) {
  return std::string(":root { --paper: ") + surface.paper + "; --ink: " + surface.ink +
         "; --muted: " + surface.muted + "; --grid: " + surface.grid + "; --link: " + link +
         "; }\n";
}

// In the colours of the figures: light, dark on screens where the reader prefers it, light in
// print.
std::string html_style() {
  return variables(plot::kLight, "#0060a0") + "@media screen and (prefers-color-scheme: dark) {\n" +
         variables(plot::kDark, "#6cb6ff") + "}\n" + kHtmlRules;
}

bool has_pictures(const Page& page) {
  return std::ranges::any_of(
      page.sections, [](const Section& section) { return !section.pictures.empty(); });
}

// The policy has the browser refuse whatever would come from the network, and all scripts.
std::string head(const Page& page) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'" +
         std::string(has_pictures(page) ? "; img-src data:" : "") + "\">\n" +
         element("title", page.title) + "<style>\n" + html_style() + "</style>\n</head>\n";
}

std::string anchor(std::size_t section) { return "section." + std::to_string(section + 1); }

std::string in_short(const Page& page) {
  std::string list;
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    const Section& section = page.sections[i];
    const std::string& answer = section.conclusion.answer;
    if (answer.empty()) continue;
    list += "<li><a href=\"#" + anchor(i) + "\">" + escape_markup(section.title) +
            "</a>: " + escape_markup(answer) + "</li>\n";
  }
  return list.empty() ? "" : "<nav>\n<h2>In short</h2>\n<ul>\n" + list + "</ul>\n</nav>\n";
}

std::string conclusion_element(const Conclusion& conclusion) {
  std::string remarks;
  for (const std::string& remark : conclusion.remarks) remarks += element("li", remark);
  return html_paragraph("conclusion", conclusion.answer) +
         (remarks.empty() ? "" : "<ul>\n" + remarks + "</ul>\n");
}

std::string head_row(const Table& table) {
  std::string row = "<thead><tr>";
  for (const Column& column : table.columns) {
    row += column.is_text ? "<th scope=\"col\" class=\"text\">" : "<th scope=\"col\">";
    row += escape_markup(column.head) + "</th>";
  }
  return row + "</tr></thead>\n";
}

std::string body_row(const Table& table, const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string text = escape_markup(cells[i]);
    if (table.columns[i].is_bar) {
      row += "<td><span class=\"meter\"><i style=\"width: " + text + "%\"></i></span></td>";
    } else {
      row += (table.columns[i].is_text ? "<td class=\"text\">" : "<td>") + text + "</td>";
    }
  }
  return row + "</tr>\n";
}

// What is wide scrolls in a box of its own, which the keyboard reaches, too.
std::string scrolling(
    const std::string& kind, const std::string& title, const std::string& content) {
  return "<div class=\"" + kind + "\" tabindex=\"0\" role=\"region\" aria-label=\"" +
         escape_markup(title) + "\">\n" + content + "</div>\n";
}

std::string table_element(const Table& table) {
  std::string text = "<table id=\"table." + table.id + "\">\n" + element("caption", table.title) +
                     head_row(table) + "<tbody>\n";
  for (const std::vector<std::string>& cells : table.rows) text += body_row(table, cells);
  text = scrolling(
      "table", table.title.empty() ? table.id : table.title, text + "</tbody>\n</table>\n");
  for (const std::string& note : table.notes) text += html_paragraph("note", note);
  return text;
}

std::string picture_element(const Picture& picture) {
  std::string looks, caption;
  for (const Picture::Look& look : picture.looks) {
    const std::string text = escape_markup(look.text);
    looks += concat("<img", look.is_large ? " class=\"large\"" : "", " title=\"", text, "\" alt=\"",
        text, "\" src=\"data:image/png;base64,", base64(look.png), "\">");
  }
  for (const std::string& line : picture.caption)
    caption += (caption.empty() ? "" : "<br>") + escape_markup(line);
  return "<figure class=\"picture\">" +
         (looks.empty() ? "" : "<div class=\"looks\">" + looks + "</div>") + "<figcaption>" +
         caption + "</figcaption></figure>\n";
}

std::string pictures_element(const Section& section) {
  std::string pictures;
  for (const Picture& picture : section.pictures) pictures += picture_element(picture);
  return pictures.empty() ? "" : "<div class=\"pictures\">\n" + pictures + "</div>\n";
}

std::string section_element(const Section& section, std::size_t index) {
  std::string text = "<section id=\"" + anchor(index) + "\">\n" + element("h2", section.title) +
                     html_paragraph("question", section.question) +
                     conclusion_element(section.conclusion);
  for (const plot::Figure& figure : section.figures)
    text += scrolling("figure", figure.title, plot::to_svg(figure));
  for (const plot::Timeline& timeline : section.timelines)
    text += scrolling("figure", timeline.title, plot::to_svg(timeline));
  for (const plot::HeatMap& map : section.heat_maps)
    text += scrolling("table", map.title, plot::to_svg(map));
  for (const Table& table : section.tables) text += table_element(table);
  return text + pictures_element(section) + "</section>\n";
}

std::string environment_element(const std::string& environment) {
  if (environment.empty()) return "";
  std::istringstream lines(environment);
  std::string text = "<section>\n<h2>Environment</h2>\n<pre>";
  for (std::string line; std::getline(lines, line);) text += escape_markup(line) + '\n';
  return text + "</pre>\n</section>\n";
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
  const auto check_figures = [&](const auto& all, const auto& check_one) {
    for (const auto& figure : all) {
      check_one(figure);
      check(figures.insert(figure.id).second, "page: two figures have the id '", figure.id, "'");
    }
  };
  for (const Section& section : page.sections) {
    for (const Table& table : section.tables) {
      check_table(table);
      check(tables.insert(table.id).second, "page: two tables have the id '", table.id, "'");
    }
    check_figures(section.figures, plot::check_figure);
    check_figures(section.timelines, plot::check_timeline);
    check_figures(section.heat_maps, plot::check_heat_map);
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

std::string to_html(const Page& page) {
  check_page(page);
  std::string html = head(page) + "<body>\n<main>\n" + element("h1", page.title) +
                     element("p", page.summary) + in_short(page);
  for (std::size_t i = 0; i < page.sections.size(); ++i) {
    html += section_element(page.sections[i], i);
  }
  return html + environment_element(page.environment) + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep::page
