#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plot {

/// The font of a text.
struct TextSize {
  double pixels = 12;
  bool bold = false;
};

/// Estimates how wide a text is, in pixels, never less than in the usual sans serif fonts: the
/// widths of DejaVu Sans, the widest of them, and a margin of 3 %.
double text_width(std::string_view text, TextSize size = {});

/// Cuts a text into lines no wider than `width` pixels, at spaces where possible. At least one
/// line; a line holds at least one character, whatever the width.
std::vector<std::string> wrap(std::string_view text, double width, TextSize size = {});

/// Cuts a text into its code points, each as its bytes. What no picture can hold, bytes that are
/// not UTF-8 and control characters, becomes U+FFFD; tabs and ends of lines become spaces.
std::vector<std::string> code_points(std::string_view text);

/// Escapes a text for SVG and HTML, between tags and in quoted attributes.
std::string escape_markup(std::string_view text);

}  // namespace lockstep::plot
