#pragma once

#include <string>

#include "lockstep/bench/page/page.h"

namespace lockstep::bench::page {

/// Writes a table as GitHub's Markdown: its title, the rows, its notes. Throws as check_table().
std::string to_markdown(const Table& table);

/// Writes a section; its figures are links to `FIGURES/ID.svg`, which the caller writes.
std::string to_markdown(const Section& section, const std::string& figures = "figures");

/// Writes a page, the conclusions first. Throws as check_page().
std::string to_markdown(const Page& page, const std::string& figures = "figures");

}  // namespace lockstep::bench::page
