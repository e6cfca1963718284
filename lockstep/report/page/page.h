#pragma once

#include <string>
#include <vector>

#include "lockstep/report/page/section.h"

namespace lockstep::bench::page {

/// A whole report.
struct Page {
  std::string title;
  std::vector<Section> sections;
  std::string environment = "";  ///< machine and programs; its lines are kept
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

}  // namespace lockstep::bench::page
