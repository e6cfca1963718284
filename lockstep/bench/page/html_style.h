#pragma once

#include <string>

namespace lockstep::bench::page {

/// Gives the style sheet of a page, in the colours of its figures: light, dark on screens where the
/// reader prefers it, light in print.
std::string html_style();

}  // namespace lockstep::bench::page
