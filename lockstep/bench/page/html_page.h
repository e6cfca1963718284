#pragma once

#include <string>

#include "lockstep/bench/page/page.h"

namespace lockstep::bench::page {

/// Writes a page as one HTML file that needs neither network nor script: the conclusions first,
/// then each section with its figures and tables, last the environment. It follows the reader's
/// light or dark mode and prints in light. Throws as check_page().
std::string to_html(const Page& page);

}  // namespace lockstep::bench::page
