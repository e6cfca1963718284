#pragma once

#include <cstddef>
#include <string>

namespace lockstep::bench::plot {

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

/// Returns the outline of a series' marker as the path of an SVG, about 9 pixels wide around the
/// origin; eight shapes before they begin again, so that shape and colour together name one of 56.
std::string marker_path(std::size_t series);

/// Returns the lengths of dashes and gaps of a series' line; empty: an unbroken one. Those of what
/// is predicted or published are short.
std::string line_dashes(std::size_t series);
std::string dashed_dashes(std::size_t series);

/// Returns the lines that are drawn over a bar as the path of a tile of 8 by 8 pixels; empty: none.
std::string hatch_path(std::size_t series);

}  // namespace lockstep::bench::plot
