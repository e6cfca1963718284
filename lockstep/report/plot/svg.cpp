#include <cstddef>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/figure.h"
#include "lockstep/report/plot/layout.h"
#include "lockstep/report/plot/palette.h"
#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

/// Describes a point, as in "ddp, 2: 5.6 (5.4 to 5.9)".
std::string point_text(const Figure& figure, const Series& series, const Point& point);

using Style = Series::Style;

constexpr double kHalfCap = 4;

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + coordinate(value) + '"';
}

std::string group(std::size_t series, const std::string& content) {
  return "<g class=\"s" + std::to_string(series % kColours) + "\">" + content + "</g>\n";
}

std::string with_title(const std::string& text, const std::string& content) {
  return "<g><title>" + escape_markup(text) + "</title>" + content + "</g>";
}

std::string stroke(const Series& series, std::size_t index) {
  const bool dashed = series.style == Style::kDashed;
  const std::string dashes = dashed ? dashed_dashes(index) : line_dashes(index);
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
  const bool hatched = !hatch_path(series).empty();
  if (!hatched) return place + fill;
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

std::string x_text(const Figure& figure, double x) {
  if (!figure.x.categories.empty()) return figure.x.categories[static_cast<std::size_t>(x)];
  return figure.x.bytes ? byte_texts({x}).front() : value_text(x);
}

std::string y_text(const Figure& figure, double y) {
  return figure.y.bytes ? byte_texts({y}).front() : value_text(y);
}

std::string point_text(const Figure& figure, const Series& series, const Point& point) {
  std::string text = series.name.empty() ? "" : series.name + ", ";
  text += x_text(figure, point.x) + ": " + y_text(figure, point.y);
  if (point.low || point.high) {
    text += " (" + y_text(figure, point.low.value_or(point.y)) + " to " +
            y_text(figure, point.high.value_or(point.y)) + ")";
  }
  return text;
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
    const std::string path = hatch_path(i);
    if (figure.series[i].style != Style::kBars || path.empty()) continue;
    content +=
        "<pattern id=\"" + figure.id + "-hatch-" + std::to_string(i) +
        "\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><path class=\"hatch\" d=\"" +
        path + "\"/></pattern>";
  }
  return content.empty() ? "" : "<defs>" + content + "</defs>\n";
}

// Every rule names the class of the picture: in a page its style reaches nothing else.
constexpr const char* kRules =
    ".lockstep-figure{font-family:'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',"
    "sans-serif;font-size:12px;max-width:100%;height:auto}"
    ".lockstep-figure .line{fill:none;stroke:currentColor;stroke-linejoin:round}"
    ".lockstep-figure .interval{fill:none;stroke:currentColor;stroke-width:1.4}"
    ".lockstep-figure .full{fill:currentColor;stroke-width:1}"
    ".lockstep-figure .hollow{stroke:currentColor;stroke-width:1.7}"
    ".lockstep-figure .bar{fill:currentColor}"
    ".lockstep-figure .faint{fill-opacity:0.35}"
    ".lockstep-figure .interval-on-bar{fill:none;stroke-width:1.4}"
    ".lockstep-figure .hatch{fill:none;stroke-width:1.4}"
    ".lockstep-figure .grid{fill:none;stroke-width:1}"
    ".lockstep-figure .axis{fill:none;stroke-width:1}";

std::string surface_rules(const Surface& surface, std::string (*colour)(std::size_t)) {
  const auto rule = [](const std::string& name, const char* property, const std::string& value) {
    return ".lockstep-figure " + name + "{" + property + ":" + value + "}";
  };
  std::string rules =
      rule(".paper", "fill", surface.paper) + rule("text", "fill", surface.ink) +
      rule(".muted", "fill", surface.muted) + rule(".grid", "stroke", surface.grid) +
      rule(".axis", "stroke", surface.muted) + rule(".interval-on-bar", "stroke", surface.ink) +
      rule(".full", "stroke", surface.paper) + rule(".hollow", "fill", surface.paper) +
      rule(".hatch", "stroke", surface.paper);
  for (std::size_t i = 0; i < kColours; ++i) {
    rules += rule(".s" + std::to_string(i), "color", colour(i));
  }
  return rules;
}

std::string style() {
  // On paper it is always light: dark is for screens only.
  return "<style>" + std::string(kRules) + surface_rules(kLight, light_colour) +
         "@media screen and (prefers-color-scheme:dark){" + surface_rules(kDark, dark_colour) +
         "}</style>\n";
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

std::string opening(const Figure& figure, double height) {
  const std::string size = coordinate(kWidth) + "\" height=\"" + coordinate(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-figure\" width=\"" + size +
         "\" viewBox=\"0 0 " + coordinate(kWidth) + ' ' + coordinate(height) +
         "\" role=\"img\" aria-labelledby=\"" + figure.id + "-title " + figure.id + "-text\">\n" +
         "<title id=\"" + figure.id + "-title\">" + escape_markup(figure.title) + "</title>\n" +
         "<desc id=\"" + figure.id + "-text\">" + escape_markup(described(figure)) + "</desc>\n";
}

std::string draw_text(const PlacedText& text) {
  const std::string x = coordinate(text.x);
  const std::string y = coordinate(text.y);
  std::string element = "<text x=\"" + x + "\" y=\"" + y + '"';
  if (text.anchor == PlacedText::Anchor::kMiddle) element += " text-anchor=\"middle\"";
  if (text.anchor == PlacedText::Anchor::kEnd) element += " text-anchor=\"end\"";
  if (text.size.pixels != 12) element += " font-size=\"" + coordinate(text.size.pixels) + '"';
  if (text.size.bold) element += " font-weight=\"bold\"";
  if (text.muted) element += " class=\"muted\"";
  if (text.upright) element += " transform=\"rotate(-90 " + x + ' ' + y + ")\"";
  return element + '>' + escape_markup(text.text) + "</text>\n";
}

std::string path(const char* kind, const std::string& lines) {
  return std::string("<path class=\"") + kind + "\" d=\"" + lines + "\"/>\n";
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
  return path("grid", across) + (ticks.empty() ? "" : path("axis", ticks));
}

// Through zero where bars stand on it, otherwise below.
std::string draw_axes(const Layout& layout) {
  const Scale& y = layout.y.scale;
  const bool crosses = !y.logarithmic && y.range.low < 0 && y.range.high > 0;
  const std::string left = coordinate(layout.left);
  const std::string right = coordinate(layout.right);
  std::string lines = 'M' + left + ' ' + coordinate(layout.bottom) + 'H' + right;
  if (crosses) lines += 'M' + left + ' ' + coordinate(y.place(0)) + 'H' + right;
  return path("axis", lines);
}

}  // namespace

std::string to_svg(const Figure& figure) {
  check_figure(figure);
  const Layout layout = lay_out(figure);
  std::string svg = opening(figure, layout.height) + style() + hatch_definitions(figure) +
                    "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n" +
                    draw_grid(figure, layout) + draw_series(figure, layout) + draw_axes(layout) +
                    draw_legend(figure, layout.legend);
  for (const PlacedText& text : layout.texts) svg += draw_text(text);
  return svg + "</svg>\n";
}

}  // namespace lockstep::bench::plot
