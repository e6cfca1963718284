#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/report/plot/figure.h"

namespace lockstep::page {

/// The head of a column.
struct Column {
  std::string head;      ///< with the unit, as in "epoch [s]"
  bool is_text = false;  ///< names and reasons are set to the left, numbers to the right
  bool is_bar = false;   ///< whole numbers from 0 to 100, which HTML draws as bars
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

/// The answer to a study's question, and what a reader should know beside it.
struct Conclusion {
  std::string answer;                     ///< plain: which way paid, by how much, how sure
  std::vector<std::string> remarks = {};  ///< figures behind the answer, and its limits
};

/// A small picture, or several of one thing, and the lines under them.
struct Picture {
  struct Look {
    std::vector<std::uint8_t> png;  ///< a whole file
    std::string text;               ///< what it shows
    bool is_large = false;          ///< it has more pixels than room, so they may be smoothed
  };

  std::vector<Look> looks = {};  ///< of several the first is framed
  std::vector<std::string> caption = {};
};

/// The report of one study: its question, its answer, and the evidence.
struct Section {
  std::string title;
  std::string question;  ///< one sentence
  Conclusion conclusion = {};
  std::vector<Table> tables = {};
  std::vector<plot::Figure> figures = {};
  std::vector<plot::HeatMap> heat_maps = {};  ///< only HTML shows them, as the pictures
  std::vector<plot::Timeline> timelines = {};
  std::vector<Picture> pictures = {};
};

/// A whole report.
struct Page {
  std::string title;
  std::vector<Section> sections;
  std::string environment = "";  ///< machine and programs; its lines are kept
  std::string summary = "";      ///< a sentence under the title, only in HTML
};

/// Throws InvalidArgument for tables and figures that cannot be shown, as check_table() and
/// plot::check_figure() do, and for two tables or two figures of one id: they would be one file.
void check_page(const Page& page);

/// Writes a page as one HTML file that needs neither network nor script: the conclusions first,
/// then each section with its figures and tables, last the environment. It follows the reader's
/// light or dark mode and prints in light. Throws as check_page().
std::string to_html(const Page& page);

/// Writes a table for a terminal; what could steer one is replaced. Throws as
/// check_table().
std::string to_text(const Table& table);

/// Writes question, tables and conclusion of a section for a terminal; figures are left out.
std::string to_text(const Section& section);

/// Writes a table as GitHub's Markdown: its title, the rows, its notes. Throws as check_table().
std::string to_markdown(const Table& table);

/// Writes a section; its figures are links to `FIGURES/ID.svg`, which the caller writes.
std::string to_markdown(const Section& section, const std::string& figures = "figures");

/// Writes a page, the conclusions first. Throws as check_page().
std::string to_markdown(const Page& page, const std::string& figures = "figures");

}  // namespace lockstep::page
