#include "lockstep/report/plot/timeline.h"

#include <algorithm>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/palette.h"
#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

constexpr double kTimelineWidth = 720, kMargin = 8, kRowHeight = 26, kBoxHeight = 20;
constexpr double kLineHeight = 20, kSwatch = 12, kWidestRowName = 180;
constexpr double kThinnest = 0.4;  // pixels, so that a short box is seen

constexpr const char* kTimelineRules =
    ".lockstep-timeline{font:12px 'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',"
    "sans-serif}"
    ".lockstep-timeline .grid{fill:none;stroke-width:1}";

std::string colour_rules(
    const Timeline& timeline, const Surface& surface, std::string (*colour)(std::size_t)) {
  std::string rules = concat(".lockstep-timeline text{fill:", surface.ink,
      "}.lockstep-timeline .muted{fill:", surface.muted,
      "}.lockstep-timeline .grid{stroke:", surface.grid,
      "}.lockstep-timeline .paper{fill:", surface.paper, "}");
  std::size_t loud = 0;
  for (std::size_t kind = 0; kind < timeline.kinds.size(); ++kind)
    rules += concat(".lockstep-timeline .kind", kind,
        "{fill:", timeline.kinds[kind].is_quiet ? surface.grid : colour(loud++), "}");
  return rules;
}

std::string timeline_style(const Timeline& timeline) {
  return concat("<style>", kTimelineRules, colour_rules(timeline, kLight, light_colour),
      "@media screen and (prefers-color-scheme:dark){", colour_rules(timeline, kDark, dark_colour),
      "}</style>\n");
}

/// Where the parts of a timeline lie.
struct TimelinePlaces {
  double left = 0, top = 0, bottom = 0, height = 0;
  double pixels = 0;  // of a unit of time

  double at(double time) const { return left + time * pixels; }
  double row(std::size_t row) const { return top + kRowHeight * static_cast<double>(row); }
};

std::string row_name(const std::string& name) {
  if (text_width(name) <= kWidestRowName) return name;
  return wrap(name, kWidestRowName - text_width("...")).front() + "...";
}

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
    text += concat("<rect class=\"kind", kind, "\" x=\"", coordinate(x), "\" y=\"",
        coordinate(y - 10), "\" width=\"", kSwatch, "\" height=\"", kSwatch, "\"/><text x=\"",
        coordinate(x + kSwatch + 6), "\" y=\"", coordinate(y), "\">", escape_markup(name),
        "</text>\n");
    x += width;
  }
  bottom = y + kMargin;
  return text;
}

TimelinePlaces places_of(const Timeline& timeline, double top) {
  TimelinePlaces places{.top = top};
  for (const std::string& name : timeline.rows)
    places.left = std::max(places.left, text_width(row_name(name)));
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
    labels += concat("<text class=\"muted\" text-anchor=\"middle\" x=\"", x, "\" y=\"",
        coordinate(places.bottom + 16), "\">", texts[i], "</text>\n");
  }
  return concat("<path class=\"grid\" d=\"", lines, "\"/>\n", labels,
      "<text class=\"muted\" text-anchor=\"end\" x=\"", coordinate(kTimelineWidth - kMargin),
      "\" y=\"", coordinate(places.bottom + 32), "\">", escape_markup(timeline.unit), "</text>\n");
}

std::string timeline_rows(const Timeline& timeline, const TimelinePlaces& places) {
  std::string text;
  for (std::size_t row = 0; row < timeline.rows.size(); ++row)
    text += concat("<text text-anchor=\"end\" x=\"", coordinate(places.left - kMargin), "\" y=\"",
        coordinate(places.row(row) + 15), "\">", escape_markup(row_name(timeline.rows[row])),
        "</text>\n");
  return text;
}

std::string drawn(
    const Timeline& timeline, const Timeline::Box& box, const TimelinePlaces& places) {
  const double width = std::max(kThinnest, (box.end - box.begin) * places.pixels);
  return concat("<rect class=\"kind", box.kind, "\" x=\"", coordinate(places.at(box.begin)),
      "\" y=\"", coordinate(places.row(box.row)), "\" width=\"", coordinate(width), "\" height=\"",
      kBoxHeight, "\"><title>", escape_markup(timeline.kinds[box.kind].name), ": ",
      escape_markup(box.name), ", ", value_text(box.end - box.begin), " ",
      escape_markup(timeline.unit), "</title></rect>\n");
}

}  // namespace

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
  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-timeline\" ",
      "viewBox=\"0 0 ", kTimelineWidth, " ", coordinate(places.height),
      "\" role=\"img\" aria-labelledby=\"", timeline.id, "-title\">\n<title id=\"", timeline.id,
      "-title\">", escape_markup(timeline.title), "</title>\n", timeline_style(timeline),
      "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text font-weight=\"bold\" x=\"",
      kMargin, "\" y=\"15\">", escape_markup(timeline.title), "</text>\n", legend,
      timeline_axis(timeline, places), timeline_rows(timeline, places));
  for (const Timeline::Box& box : timeline.boxes) svg += drawn(timeline, box, places);
  return svg + "</svg>\n";
}

}  // namespace lockstep::bench::plot
