#pragma once

#include <cstddef>
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

/// The colours of Okabe and Ito, which colour-blind readers tell apart, but for yellow, which is
/// lost on white; black is the colour of the text. So many, before they begin again.
constexpr std::size_t kColours = 7;

/// Returns the colour of a series as `#rrggbb`; on white, two of them are darker than in the
/// original, so that each has a contrast of 3 to 1 or more.
std::string light_colour(std::size_t series);
std::string dark_colour(std::size_t series);

/// The colours of all that is not data.
struct Surface {
  const char* paper;
  const char* ink;
  const char* muted;  ///< smaller texts
  const char* grid;
};
inline constexpr Surface kLight{"#ffffff", "#1f2328", "#57606a", "#e1e4e8"};
inline constexpr Surface kDark{"#15181c", "#e6e8ea", "#a7aeb6", "#31373e"};

/// A picture's outer element: its size in pixels, and its name and text for readers who do not see
/// it.
struct Canvas {
  std::string id;
  std::string title;
  std::string description = "";
  double width = 0;
  double height = 0;
};

/// Opens the `<svg>` element of a picture, with a style that follows the reader's light or dark
/// mode and is always light on paper. Of its classes, `s0` to `s6` are the colours of series, which
/// `full`, `bar` and `line` use.
std::string svg_opening(const Canvas& canvas);

/// Returns an attribute with a space before it, a number rounded as coordinate() does.
std::string attribute(const char* name, double value);

/// Returns a `<path>` element of a class, on a line of its own.
std::string svg_path(const char* kind, const std::string& lines);

/// A line of text in the picture.
struct PlacedText {
  enum class Anchor { kStart, kMiddle, kEnd };

  std::string text;
  double x = 0;  ///< of the anchor
  double y = 0;  ///< of the baseline
  Anchor anchor = Anchor::kStart;
  TextSize size = {};
  bool muted = false;
  bool upright = false;  ///< turned by 90 degrees against the clock around the anchor
};

/// Returns it as a `<text>` element on a line of its own.
std::string svg_text(const PlacedText& text);

}  // namespace lockstep::plot
