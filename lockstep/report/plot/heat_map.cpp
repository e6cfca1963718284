#include "lockstep/report/plot/heat_map.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/palette.h"
#include "lockstep/report/plot/text_width.h"

namespace lockstep::bench::plot {
namespace {

constexpr double kWidestName = 160;
constexpr double kNameGap = 6;
constexpr double kHeadline = 18;  // the line that says what the columns are
constexpr double kLeastPitch = 14, kMostPitch = 40, kUsualSide = 720;
constexpr double kPitchWithCounts = 24;

constexpr const char* kHeatMapRules =
    ".lockstep-heat-map{font-family:'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',"
    "sans-serif}"
    ".lockstep-heat-map .grid{fill:none;stroke-width:1}"
    ".lockstep-heat-map .count{text-anchor:middle;pointer-events:none}";

std::string heat_map_colours(
    const Surface& surface, const std::string& right, const std::string& wrong) {
  const auto rule = [](const char* name, const char* property, const std::string& value) {
    return concat(".lockstep-heat-map ", name, "{", property, ":", value, "}");
  };
  return rule("text", "fill", surface.ink) + rule(".muted", "fill", surface.muted) +
         rule(".on-dark", "fill", surface.paper) + rule(".grid", "stroke", surface.grid) +
         rule(".right", "fill", right) + rule(".wrong", "fill", wrong);
}

// Blue and vermilion of the series' colours.
std::string heat_map_style() {
  constexpr std::size_t kRight = 0, kWrong = 1;
  return concat("<style>", kHeatMapRules,
      heat_map_colours(kLight, light_colour(kRight), light_colour(kWrong)),
      "@media screen and (prefers-color-scheme:dark){",
      heat_map_colours(kDark, dark_colour(kRight), dark_colour(kWrong)), "}</style>\n");
}

/// Where the parts of a map lie.
struct Places {
  double pitch = 0;
  double font = 0;
  double left = 0, top = 0;  ///< of the first cell
  double side = 0;           ///< of all cells
};

std::string shortened(const std::string& name, TextSize size) {
  if (text_width(name, size) <= kWidestName) return name;
  return wrap(name, kWidestName - text_width("...", size), size).front() + "...";
}

Places places_of(const HeatMap& map) {
  const auto count = static_cast<double>(map.names.size());
  Places places;
  places.pitch = std::floor(std::clamp(kUsualSide / count, kLeastPitch, kMostPitch));
  places.font = std::min(12.0, places.pitch - 3);
  double widest = 0;
  for (const std::string& name : map.names)
    widest = std::max(
        widest, text_width(shortened(name, {.pixels = places.font}), {.pixels = places.font}));
  places.left = std::ceil(std::max(widest, text_width(map.rows)) + 2 * kNameGap);
  places.top = std::ceil(widest + 2 * kNameGap + kHeadline);
  places.side = count * places.pitch;
  return places;
}

std::string names_beside(const HeatMap& map, const Places& places) {
  const TextSize size{.pixels = places.font};
  std::string text = concat("<g font-size=\"", places.font, "\">\n");
  for (std::size_t i = 0; i < map.names.size(); ++i) {
    const std::string name = escape_markup(shortened(map.names[i], size));
    const double middle = (static_cast<double>(i) + 0.5) * places.pitch + places.font * 0.35;
    const double x = places.left + middle, y = places.top - kNameGap;
    text += concat("<text x=\"", places.left - kNameGap, "\" y=\"", places.top + middle,
        "\" text-anchor=\"end\">", name, "</text>\n", "<text x=\"", x, "\" y=\"", y,
        "\" transform=\"rotate(-90 ", x, " ", y, ")\">", name, "</text>\n");
  }
  return text + "</g>\n";
}

std::string what_they_are(const HeatMap& map, const Places& places) {
  return concat("<text class=\"muted\" font-size=\"12\" x=\"", places.left, "\" y=\"12\">",
      escape_markup(map.columns), "</text>\n<text class=\"muted\" font-size=\"12\" x=\"",
      places.left - kNameGap, "\" y=\"", places.top - kNameGap, "\" text-anchor=\"end\">",
      escape_markup(map.rows), "</text>\n");
}

// A line at each cell where they are few, else at each tenth.
std::string grid_of(const HeatMap& map, const Places& places) {
  constexpr std::size_t kFew = 20, kStep = 10;
  const std::size_t step = map.names.size() <= kFew ? 1 : kStep;
  std::string path;
  const auto line = [&](double at) {
    path += concat("M", places.left + at, " ", places.top, "v", places.side, "M", places.left, " ",
        places.top + at, "h", places.side);
  };
  for (std::size_t i = 0; i < map.names.size(); i += step)
    line(static_cast<double>(i) * places.pitch);
  line(places.side);
  return concat("<path class=\"grid\" d=\"", path, "\"/>\n");
}

// Small shares are to be seen, too.
double opacity_of(double share) { return 0.12 + 0.88 * std::sqrt(share); }

std::string count_in(const HeatMap::Cell& cell, const Places& places, double x, double y) {
  if (places.pitch < kPitchWithCounts) return "";
  const std::string text = std::to_string(cell.count);
  constexpr double kWidthOfDigit = 0.65;
  const double fitting = (places.pitch - 2) / (static_cast<double>(text.size()) * kWidthOfDigit);
  const double font = std::min(12.0, std::floor(fitting));
  constexpr double kDark = 0.6;
  return concat("<text class=\"count", opacity_of(cell.share) > kDark ? " on-dark" : "",
      "\" font-size=\"", font, "\" x=\"", x + places.pitch / 2, "\" y=\"",
      y + places.pitch / 2 + font * 0.35, "\">", text, "</text>\n");
}

std::string drawn(const HeatMap& map, const HeatMap::Cell& cell, const Places& places) {
  const double x = places.left + static_cast<double>(cell.column) * places.pitch;
  const double y = places.top + static_cast<double>(cell.row) * places.pitch;
  const double opacity = std::round(opacity_of(cell.share) * 100) / 100;
  return concat("<rect class=\"", cell.row == cell.column ? "right" : "wrong", "\" x=\"", x,
      "\" y=\"", y, "\" width=\"", places.pitch, "\" height=\"", places.pitch, "\" fill-opacity=\"",
      opacity, "\"><title>",
      escape_markup(
          concat(map.rows, " ", map.names[cell.row], ", ", map.columns, " ", map.names[cell.column],
              ": ", cell.count, " (", std::round(cell.share * 1000) / 10, " %)")),
      "</title></rect>\n", count_in(cell, places, x, y));
}

}  // namespace

void check_heat_map(const HeatMap& map) {
  const std::size_t count = map.names.size();
  check(count > 0 && count <= kMostHeatMapNames, "heat map: '", map.id, "' has ", count,
      " names; from 1 to ", kMostHeatMapNames, " can be shown");
  for (const HeatMap::Cell& cell : map.cells) {
    check(cell.row < count && cell.column < count, "heat map: '", map.id, "' has a cell ", cell.row,
        ", ", cell.column, " outside of ", count, " names");
    check(cell.share >= 0 && cell.share <= 1, "heat map: '", map.id, "': the share of cell ",
        cell.row, ", ", cell.column, " must be from 0 to 1: ", cell.share);
  }
}

std::string to_svg(const HeatMap& map) {
  check_heat_map(map);
  const Places places = places_of(map);
  const double width = places.left + places.side + kNameGap,
               height = places.top + places.side + kNameGap;
  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-heat-map\" ",
      "width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ", width, " ", height,
      "\" role=\"img\" aria-labelledby=\"", map.id, "-title\">\n<title id=\"", map.id, "-title\">",
      escape_markup(map.title), "</title>\n", heat_map_style(), what_they_are(map, places),
      names_beside(map, places));
  for (const HeatMap::Cell& cell : map.cells) svg += drawn(map, cell, places);
  return svg + grid_of(map, places) + "</svg>\n";
}

}  // namespace lockstep::bench::plot
