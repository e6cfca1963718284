#include <cstddef>

#include "lockstep/bench/plot/figure.h"
#include "lockstep/bench/plot/layout.h"
#include "lockstep/bench/plot/marks.h"
#include "lockstep/bench/plot/palette.h"
#include "lockstep/bench/plot/text_width.h"
#include "lockstep/bench/plot/ticks.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::plot {
namespace {

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
