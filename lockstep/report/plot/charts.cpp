#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/svg.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {
namespace {

constexpr double kWidestName = 160;
constexpr double kNameGap = 6;
constexpr double kHeadline = 18;  // the line that says what the columns are
constexpr double kLeastPitch = 14, kMostPitch = 40, kUsualSide = 720;
constexpr double kPitchWithCounts = 24;

using Anchor = PlacedText::Anchor;

struct Box {
  double x, y, width, height;
};

// Without its end.
std::string rectangle(const std::string& kind, const Box& box) {
  return concat("<rect class=\"", kind, '"', attribute("x", box.x), attribute("y", box.y),
      attribute("width", box.width), attribute("height", box.height));
}

/// Where the parts of a map lie.
struct Places {
  double pitch = 0;
  double font = 0;
  double left = 0, top = 0;  ///< of the first cell
  double side = 0;           ///< of all cells
};

std::string shortened(const std::string& name, double widest, TextSize size = {}) {
  if (text_width(name, size) <= widest) return name;
  return wrap(name, widest - text_width("...", size), size).front() + "...";
}

Places places_of(const HeatMap& map) {
  const auto count = static_cast<double>(map.names.size());
  Places places;
  places.pitch = std::floor(std::clamp(kUsualSide / count, kLeastPitch, kMostPitch));
  places.font = std::min(12.0, places.pitch - 3);
  const TextSize size{.pixels = places.font};
  double widest = 0;
  for (const std::string& name : map.names)
    widest = std::max(widest, text_width(shortened(name, kWidestName, size), size));
  places.left = std::ceil(std::max(widest, text_width(map.rows)) + 2 * kNameGap);
  places.top = std::ceil(widest + 2 * kNameGap + kHeadline);
  places.side = count * places.pitch;
  return places;
}

std::string names_beside(const HeatMap& map, const Places& places) {
  const TextSize size{.pixels = places.font};
  std::string text;
  for (std::size_t i = 0; i < map.names.size(); ++i) {
    const std::string name = shortened(map.names[i], kWidestName, size);
    const double middle = (static_cast<double>(i) + 0.5) * places.pitch + places.font * 0.35;
    text += svg_text({.text = name,
        .x = places.left - kNameGap,
        .y = places.top + middle,
        .anchor = Anchor::kEnd,
        .size = size});
    text += svg_text({.text = name,
        .x = places.left + middle,
        .y = places.top - kNameGap,
        .size = size,
        .upright = true});
  }
  return text;
}

std::string what_they_are(const HeatMap& map, const Places& places) {
  return svg_text({.text = map.columns, .x = places.left, .y = 12, .muted = true}) +
         svg_text({.text = map.rows,
             .x = places.left - kNameGap,
             .y = places.top - kNameGap,
             .anchor = Anchor::kEnd,
             .muted = true});
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
  return svg_path("grid", path);
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
  return concat(
      rectangle(cell.row == cell.column ? "bar s0" : "bar s1", {x, y, places.pitch, places.pitch}),
      attribute("fill-opacity", opacity_of(cell.share)), "><title>",
      escape_markup(
          concat(map.rows, " ", map.names[cell.row], ", ", map.columns, " ", map.names[cell.column],
              ": ", cell.count, " (", std::round(cell.share * 1000) / 10, " %)")),
      "</title></rect>\n", count_in(cell, places, x, y));
}

constexpr double kTimelineWidth = 720, kMargin = 8, kRowHeight = 26, kBoxHeight = 20;
constexpr double kLineHeight = 20, kSwatch = 12, kWidestRowName = 180;
constexpr double kThinnest = 0.4;  // pixels, so that a short box is seen

// Each kind has the next colour, unless it is quiet.
std::string class_of_kind(const Timeline& timeline, std::size_t kind) {
  if (timeline.kinds[kind].is_quiet) return "quiet";
  const auto before = timeline.kinds.begin();
  const auto loud = std::count_if(before, before + static_cast<std::ptrdiff_t>(kind),
      [](const Timeline::Kind& each) { return !each.is_quiet; });
  return concat("bar s", static_cast<std::size_t>(loud) % kColours);
}

/// Where the parts of a timeline lie.
struct TimelinePlaces {
  double left = 0, top = 0, bottom = 0, height = 0;
  double pixels = 0;  // of a unit of time

  double at(double time) const { return left + time * pixels; }
  double row(std::size_t row) const { return top + kRowHeight * static_cast<double>(row); }
};

// Only of what is there.
std::vector<std::size_t> kinds_in(const Timeline& timeline) {
  std::set<std::size_t> found;
  for (const Timeline::Box& box : timeline.boxes) found.insert(box.kind);
  return {found.begin(), found.end()};
}

std::string timeline_legend(const Timeline& timeline, double& bottom) {
  std::string text;
  double x = kMargin, y = kMargin + kLineHeight + 10;
  for (const std::size_t kind : kinds_in(timeline)) {
    const std::string& name = timeline.kinds[kind].name;
    const double width = kSwatch + 6 + text_width(name) + 16;
    if (x + width > kTimelineWidth && x > kMargin) {
      x = kMargin;
      y += kLineHeight;
    }
    text += rectangle(class_of_kind(timeline, kind), {x, y - 10, kSwatch, kSwatch}) + "/>" +
            svg_text({.text = name, .x = x + kSwatch + 6, .y = y});
    x += width;
  }
  bottom = y + kMargin;
  return text;
}

TimelinePlaces places_of(const Timeline& timeline, double top) {
  TimelinePlaces places{.top = top};
  for (const std::string& name : timeline.rows)
    places.left = std::max(places.left, text_width(shortened(name, kWidestRowName)));
  places.left += 2 * kMargin;
  places.pixels = (kTimelineWidth - kMargin - places.left) / timeline.length;
  places.bottom = places.row(timeline.rows.size());
  places.height = places.bottom + 2 * kLineHeight;
  return places;
}

std::string timeline_axis(const Timeline& timeline, const TimelinePlaces& places) {
  constexpr int kMostTicks = 8;
  const std::vector<double> ticks = linear_ticks({0, timeline.length}, kMostTicks);
  const std::vector<std::string> texts = tick_texts(ticks);
  std::string lines, labels;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const std::string x = coordinate(places.at(ticks[i]));
    lines += concat("M", x, " ", coordinate(places.top), "V", coordinate(places.bottom));
    labels += svg_text({.text = texts[i],
        .x = places.at(ticks[i]),
        .y = places.bottom + 16,
        .anchor = Anchor::kMiddle,
        .muted = true});
  }
  return svg_path("grid", lines) + labels +
         svg_text({.text = timeline.unit,
             .x = kTimelineWidth - kMargin,
             .y = places.bottom + 32,
             .anchor = Anchor::kEnd,
             .muted = true});
}

std::string timeline_rows(const Timeline& timeline, const TimelinePlaces& places) {
  std::string text;
  for (std::size_t row = 0; row < timeline.rows.size(); ++row)
    text += svg_text({.text = shortened(timeline.rows[row], kWidestRowName),
        .x = places.left - kMargin,
        .y = places.row(row) + 15,
        .anchor = Anchor::kEnd});
  return text;
}

std::string drawn(
    const Timeline& timeline, const Timeline::Box& box, const TimelinePlaces& places) {
  const double width = std::max(kThinnest, (box.end - box.begin) * places.pixels);
  return concat(rectangle(class_of_kind(timeline, box.kind),
                    {places.at(box.begin), places.row(box.row), width, kBoxHeight}),
      "><title>",
      escape_markup(concat(timeline.kinds[box.kind].name, ": ", box.name, ", ",
          value_text(box.end - box.begin), " ", timeline.unit)),
      "</title></rect>\n");
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
  std::string svg =
      svg_opening({.id = map.id, .title = map.title, .width = width, .height = height}) +
      what_they_are(map, places) + names_beside(map, places);
  for (const HeatMap::Cell& cell : map.cells) svg += drawn(map, cell, places);
  return svg + grid_of(map, places) + "</svg>\n";
}

void check_timeline(const Timeline& timeline) {
  check(!timeline.rows.empty() && timeline.length > 0, "timeline: '", timeline.id,
      "' needs rows and a length; it has ", timeline.rows.size(), " rows and ", timeline.length);
  const double slack = 1e-6 * timeline.length;
  for (const Timeline::Box& box : timeline.boxes)
    check(box.row < timeline.rows.size() && box.kind < timeline.kinds.size() &&
              box.begin >= -slack && box.begin <= box.end && box.end <= timeline.length + slack,
        "timeline: '", timeline.id, "' has a box outside of it: row ", box.row, ", kind ", box.kind,
        ", from ", box.begin, " to ", box.end);
}

std::string to_svg(const Timeline& timeline) {
  check_timeline(timeline);
  double top = 0;
  const std::string legend = timeline_legend(timeline, top);
  const TimelinePlaces places = places_of(timeline, top);
  std::string svg =
      svg_opening({.id = timeline.id,
          .title = timeline.title,
          .width = kTimelineWidth,
          .height = places.height}) +
      "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" +
      svg_text({.text = timeline.title, .x = kMargin, .y = 15, .size = {.bold = true}}) + legend +
      timeline_axis(timeline, places) + timeline_rows(timeline, places);
  for (const Timeline::Box& box : timeline.boxes) svg += drawn(timeline, box, places);
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
