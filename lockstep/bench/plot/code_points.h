#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench::plot {

/// Cuts a text into its code points, each as its bytes. What no picture can hold, bytes that are
/// not UTF-8 and control characters, becomes U+FFFD; tabs and ends of lines become spaces.
std::vector<std::string> code_points(std::string_view text);

/// Escapes a text for SVG and HTML, between tags and in quoted attributes.
std::string escape_markup(std::string_view text);

}  // namespace lockstep::bench::plot
