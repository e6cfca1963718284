#include "lockstep/report/plot/figure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <set>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/layout.h"
#include "lockstep/report/plot/svg.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {
namespace {

// Beyond these a span of two values, or its logarithm, is no number any more.
constexpr double kLargest = 1e100;
constexpr double kSmallest = 1e-100;

void check_value(const std::string& where, const char* name, double value, bool logarithmic) {
  check(std::isfinite(value), where, name, " is ", value, "; leave out points that have no value");
  check(std::abs(value) <= kLargest, where, name, " is ", value, ", beyond ", kLargest);
  check(!logarithmic || value >= kSmallest, where, name, " is ", value,
      ", which has no place on a logarithmic axis");
  check(value == 0 || std::abs(value) >= kSmallest, where, name, " is ", value,
      ", too small to draw; make it 0");
}

void check_point(const Figure& figure, const Point& point, const std::string& where) {
  check_value(where, "x", point.x, figure.x.logarithmic);
  check_value(where, "y", point.y, figure.y.logarithmic);
  if (point.low) check_value(where, "low", *point.low, figure.y.logarithmic);
  if (point.high) check_value(where, "high", *point.high, figure.y.logarithmic);
  const double low = point.low.value_or(point.y);
  const double high = point.high.value_or(point.y);
  check(low <= point.y && point.y <= high, where, "y is ", point.y,
      ", outside of its interval from ", low, " to ", high);
  const std::size_t categories = figure.x.categories.size();
  check(categories == 0 || (point.x == std::floor(point.x) && 0 <= point.x &&
                               point.x < static_cast<double>(categories)),
      where, "x is ", point.x, ", no index of one of ", categories, " categories");
}

void check_series(const Figure& figure, const Series& series, const std::string& where) {
  if (series.style == Series::Style::kBars) {
    check(!figure.x.categories.empty(), where, ": bars need categories on the x axis");
    check(!figure.y.logarithmic, where,
        ": the length of a bar means nothing on a logarithmic axis; use markers");
  }
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    check_point(figure, series.points[i], concat(where, ", point ", i, ": "));
  }
}

std::string x_text(const Figure& figure, double x) {
  if (!figure.x.categories.empty()) return figure.x.categories[static_cast<std::size_t>(x)];
  return figure.x.bytes ? byte_texts({x}).front() : value_text(x);
}

std::string y_text(const Figure& figure, double y) {
  return figure.y.bytes ? byte_texts({y}).front() : value_text(y);
}

/// Describes a point, as in "ddp, 2: 5.6 (5.4 to 5.9)".
std::string point_text(const Figure& figure, const Series& series, const Point& point) {
  std::string text = series.name.empty() ? "" : series.name + ", ";
  text += x_text(figure, point.x) + ": " + y_text(figure, point.y);
  if (point.low || point.high) {
    text += " (" + y_text(figure, point.low.value_or(point.y)) + " to " +
            y_text(figure, point.high.value_or(point.y)) + ")";
  }
  return text;
}

using Style = Series::Style;

constexpr double kHalfCap = 4;

// Of the lines of series, of those that are predicted or published, and over bars; empty: none.
constexpr std::array kLineDashes{"", "9 3", "14 3 4 3", "5 3", "16 4", "9 3 3 3 3 3"};
constexpr std::array kDashedDashes{"2 4", "2 3 6 3", "4 4", "2 6"};
constexpr std::array kHatches{"", "M-2 2L2 -2M0 8L8 0M6 10L10 6", "M0 2H8M0 6H8",
    "M-2 6L2 10M0 0L8 8M6 -2L10 2", "M2 0V8M6 0V8",
    "M-2 2L2 -2M0 8L8 0M6 10L10 6M-2 6L2 10M0 0L8 8M6 -2L10 2", "M0 4H8M4 0V8"};

struct Shape {
  int corners;
  double radius;
  double turn;   // of the first corner, in degrees clockwise from the right
  double waist;  // radius between two corners in shares of it; 1: none
};

constexpr std::array kShapes{Shape{0, 4.2, 0, 1},  // circle
    Shape{4, 5.4, 45, 1},                          // square
    Shape{3, 5.8, -90, 1},                         // triangle
    Shape{4, 5.8, 0, 1},                           // diamond
    Shape{3, 5.8, 90, 1},                          // triangle on its head
    Shape{5, 6.4, -90, 0.42},                      // star
    Shape{6, 5.2, 0, 1},                           // hexagon
    Shape{4, 6.6, 45, 0.33}};                      // cross

std::string corner(double radius, double degrees) {
  const double angle = degrees / 180 * std::numbers::pi;
  return concat(coordinate(radius * std::cos(angle)), ' ', coordinate(radius * std::sin(angle)));
}

// The outline of a series' marker, about 9 pixels wide around the origin; eight shapes before they
// begin again, so that shape and colour together name one of 56.
std::string marker_path(std::size_t series) {
  const Shape& shape = kShapes[series % kShapes.size()];
  if (shape.corners == 0) {
    const std::string r = coordinate(shape.radius);
    const std::string d = coordinate(2 * shape.radius);
    return concat("M-", r, " 0a", r, ' ', r, " 0 1 0 ", d, " 0a", r, ' ', r, " 0 1 0 -", d, " 0z");
  }
  std::string path;
  for (int i = 0; i < shape.corners; ++i) {
    const double step = 360.0 / shape.corners;
    path += i == 0 ? 'M' : 'L';
    path += corner(shape.radius, shape.turn + i * step);
    if (shape.waist < 1) {
      path += 'L';
      path += corner(shape.radius * shape.waist, shape.turn + (i + 0.5) * step);
    }
  }
  return path + "z";
}

std::string group(std::size_t series, const std::string& content) {
  return "<g class=\"s" + std::to_string(series % kColours) + "\">" + content + "</g>\n";
}

std::string with_title(const std::string& text, const std::string& content) {
  return "<g><title>" + escape_markup(text) + "</title>" + content + "</g>";
}

std::string stroke(const Series& series, std::size_t index) {
  const bool dashed = series.style == Style::kDashed;
  const std::string dashes = dashed ? kDashedDashes[index % kDashedDashes.size()]
                                    : kLineDashes[index % kLineDashes.size()];
  std::string attributes = dashed ? " stroke-width=\"1.8\"" : " stroke-width=\"2\"";
  if (!dashes.empty()) attributes += " stroke-dasharray=\"" + dashes + '"';
  return attributes;
}

std::string marker(std::size_t series, double x, double y, bool hollow) {
  return "<path class=\"" + std::string(hollow ? "hollow" : "full") + "\" d=\"" +
         marker_path(series) + "\" transform=\"translate(" + coordinate(x) + ' ' + coordinate(y) +
         ")\"/>";
}

std::string rectangle(double left, double top, double width, double height) {
  return "<rect" + attribute("x", left) + attribute("y", top) + attribute("width", width) +
         attribute("height", height);
}

std::string bar_shape(
    const Figure& figure, std::size_t series, const std::string& place, bool hollow) {
  const char* fill = hollow ? " class=\"bar faint\"/>" : " class=\"bar\"/>";
  if (series % kHatches.size() == 0) return place + fill;
  return place + fill + place + " fill=\"url(#" + figure.id + "-hatch-" + std::to_string(series) +
         ")\"/>";
}

// The line from the lower to the upper end, with caps.
std::string interval(const Point& point, double x, const Scale& y, const char* kind) {
  const double low = y.place(point.low.value_or(point.y));
  const double high = y.place(point.high.value_or(point.y));
  if (coordinate(low) == coordinate(high)) return "";
  const std::string left = coordinate(x - kHalfCap);
  const std::string right = coordinate(x + kHalfCap);
  return std::string("<path class=\"") + kind + "\" d=\"M" + coordinate(x) + ' ' + coordinate(low) +
         'V' + coordinate(high) + 'M' + left + ' ' + coordinate(low) + 'H' + right + 'M' + left +
         ' ' + coordinate(high) + 'H' + right + "\"/>";
}

std::string draw_bar(const Figure& figure, const Bar& bar, const Layout& layout) {
  const Series& series = figure.series[bar.series];
  const Point& point = series.points[bar.point];
  const double top = std::min(bar.end, bar.base);
  const double height = std::max(bar.end, bar.base) - top;
  const std::string place = rectangle(bar.left, top, bar.right - bar.left, height);
  const std::string content =
      bar_shape(figure, bar.series, place, point.hollow) +
      interval(point, (bar.left + bar.right) / 2, layout.y.scale, "interval-on-bar");
  return group(bar.series, with_title(point_text(figure, series, point), content));
}

std::string draw_line(const Series& series, std::size_t index, const Layout& layout) {
  if (series.points.size() < 2) return "";
  std::string points;
  for (const Point& point : series.points) {
    if (!points.empty()) points += ' ';
    points += coordinate(layout.x.scale.place(point.x)) + ',';
    points += coordinate(layout.y.scale.place(point.y));
  }
  return group(
      index, "<polyline class=\"line\"" + stroke(series, index) + " points=\"" + points + "\"/>");
}

// A single predicted value has no line that could be seen.
bool has_marker(const Series& series) {
  return series.style != Style::kDashed || series.points.size() == 1;
}

std::string draw_points(const Figure& figure, std::size_t index, const Layout& layout) {
  const Series& series = figure.series[index];
  std::string content;
  for (const Point& point : series.points) {
    const double x = layout.x.scale.place(point.x);
    std::string shapes = interval(point, x, layout.y.scale, "interval");
    if (has_marker(series)) {
      const bool hollow = point.hollow || series.style == Style::kDashed;
      shapes += marker(index, x, layout.y.scale.place(point.y), hollow);
    }
    if (!shapes.empty()) content += with_title(point_text(figure, series, point), shapes);
  }
  return content.empty() ? "" : group(index, content);
}

std::string sign(const Figure& figure, const LegendEntry& entry) {
  const Series& series = figure.series[entry.series];
  const double middle = entry.x + kSignWidth / 2;
  if (series.style == Style::kBars) {
    return bar_shape(figure, entry.series, rectangle(middle - 9, entry.y - 6, 18, 12), false);
  }
  std::string content;
  if (series.style != Style::kMarkers && series.points.size() != 1) {
    content = "<path class=\"line\"" + stroke(series, entry.series) + " d=\"M" +
              coordinate(entry.x) + ' ' + coordinate(entry.y) + 'h' + coordinate(kSignWidth) +
              "\"/>";
  }
  if (!has_marker(series)) return content;
  return content + marker(entry.series, middle, entry.y, series.style == Style::kDashed);
}

/// Draws bars, lines, intervals and markers of all series as SVG; each mark shows its value when
/// pointed at.
std::string draw_series(const Figure& figure, const Layout& layout) {
  std::string content;
  for (const Bar& bar : layout.bars) content += draw_bar(figure, bar, layout);
  // All lines below all markers, so that no value is covered by a line.
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const Style style = figure.series[i].style;
    if (style == Style::kLine || style == Style::kDashed) {
      content += draw_line(figure.series[i], i, layout);
    }
  }
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    if (figure.series[i].style != Style::kBars) content += draw_points(figure, i, layout);
  }
  return content;
}

/// Draws the signs of the legend, without names.
std::string draw_legend(const Figure& figure, const Legend& legend) {
  std::string content;
  for (const LegendEntry& entry : legend.entries) {
    content += group(entry.series, sign(figure, entry));
  }
  return content;
}

/// Defines the hatches of a figure's bars.
std::string hatch_definitions(const Figure& figure) {
  std::string content;
  for (std::size_t i = 0; i < figure.series.size(); ++i) {
    const std::string path = kHatches[i % kHatches.size()];
    if (figure.series[i].style != Style::kBars || path.empty()) continue;
    content +=
        "<pattern id=\"" + figure.id + "-hatch-" + std::to_string(i) +
        "\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" d=\"" +
        path + "\"/></pattern>";
  }
  return content.empty() ? "" : "<defs>" + content + "</defs>\n";
}

std::string described(const Figure& figure) {
  std::string text = concat("x: ", figure.x.label, ". y: ", figure.y.label, ".");
  for (const Series& series : figure.series) {
    if (series.points.empty()) text += concat(' ', series.name, ": no values.");
    for (const Point& point : series.points) {
      text += concat(' ', point_text(figure, series, point), ';');
    }
  }
  return concat(text, ' ', figure.note);
}

std::string draw_grid(const Figure& figure, const Layout& layout) {
  std::string across;
  std::string ticks;
  for (const Tick& tick : layout.y.ticks) {
    across += 'M' + coordinate(layout.left) + ' ' + coordinate(tick.place) + 'H' +
              coordinate(layout.right);
  }
  for (const Tick& tick : layout.x.ticks) {
    const std::string x = coordinate(tick.place);
    if (figure.x.categories.empty()) {
      across += 'M' + x + ' ' + coordinate(layout.top) + 'V' + coordinate(layout.bottom);
      ticks += 'M' + x + ' ' + coordinate(layout.bottom) + "v4";
    }
  }
  return svg_path("grid", across) + (ticks.empty() ? "" : svg_path("axis", ticks));
}

// Through zero where bars stand on it, otherwise below.
std::string draw_axes(const Layout& layout) {
  const Scale& y = layout.y.scale;
  const bool crosses = !y.logarithmic && y.range.low < 0 && y.range.high > 0;
  const std::string left = coordinate(layout.left);
  const std::string right = coordinate(layout.right);
  std::string lines = 'M' + left + ' ' + coordinate(layout.bottom) + 'H' + right;
  if (crosses) lines += 'M' + left + ' ' + coordinate(y.place(0)) + 'H' + right;
  return svg_path("axis", lines);
}

}  // namespace

bool is_name(const std::string& id) {
  const auto fits = [](char letter) {
    return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') ||
           ('0' <= letter && letter <= '9') || letter == '-' || letter == '_';
  };
  return !id.empty() && std::all_of(id.begin(), id.end(), fits);
}

void check_figure(const Figure& figure) {
  check(is_name(figure.id), "figure '", figure.id,
      "': an id is made of letters, digits, - and _, for a file has its name");
  const std::string where = concat("figure '", figure.id, "'");
  check(figure.x.categories.empty() || !(figure.x.logarithmic || figure.x.bytes), where,
      ": an axis with categories is neither logarithmic nor in bytes");
  check(figure.y.categories.empty(), where, ": only the x axis may have categories");
  std::set<std::string> names;
  for (const Series& series : figure.series) {
    const std::string of_series = concat(where, ", series '", series.name, "'");
    check(names.insert(series.name).second, of_series, ": another series has the same name");
    check(!series.name.empty() || figure.series.size() == 1, of_series,
        ": one of several series must have a name");
    check_series(figure, series, of_series);
  }
}

std::string to_svg(const Figure& figure) {
  check_figure(figure);
  const Layout layout = lay_out(figure);
  std::string svg =
      svg_opening({figure.id, figure.title, described(figure), kWidth, layout.height}) +
      hatch_definitions(figure) + "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" +
      draw_grid(figure, layout) + draw_series(figure, layout) + draw_axes(layout) +
      draw_legend(figure, layout.legend);
  for (const PlacedText& text : layout.texts) svg += svg_text(text);
  return svg + "</svg>\n";
}

}  // namespace lockstep::plot
