#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/page/section.h"

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

}  // namespace lockstep::bench::page
