#include "lockstep/report/plot/svg.h"

#include <array>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/text_width.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {
namespace {

// Blue, vermillion, green, purple, orange, sky blue, black.
constexpr std::array<const char*, kColours> kOnLight{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c08400", "#3a97d0", kLight.ink};
constexpr std::array<const char*, kColours> kOnDark{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", kDark.ink};

// Every rule names the class of the picture: in a page its style reaches nothing else.
constexpr const char* kRules =
    ".lockstep-figure{font-family:'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',"
    "sans-serif;font-size:12px}"
    ".lockstep-figure .line{fill:none;stroke:currentColor;stroke-linejoin:round}"
    ".lockstep-figure .interval{fill:none;stroke:currentColor;stroke-width:1.4}"
    ".lockstep-figure .full{fill:currentColor;stroke-width:1}"
    ".lockstep-figure .hollow{stroke:currentColor;stroke-width:1.7}"
    ".lockstep-figure .bar{fill:currentColor}"
    ".lockstep-figure .faint{fill-opacity:0.35}"
    ".lockstep-figure .interval-on-bar{fill:none;stroke-width:1.4}"
    ".lockstep-figure .hatch{fill:none;stroke-width:1.4}"
    ".lockstep-figure .grid{fill:none;stroke-width:1}"
    ".lockstep-figure .axis{fill:none;stroke-width:1}"
    ".lockstep-figure .count{text-anchor:middle;pointer-events:none}";

std::string surface_rules(const Surface& surface, std::string (*colour)(std::size_t)) {
  const auto rule = [](const std::string& name, const char* property, const std::string& value) {
    return ".lockstep-figure " + name + "{" + property + ":" + value + "}";
  };
  std::string rules =
      rule(".paper", "fill", surface.paper) + rule("text", "fill", surface.ink) +
      rule(".muted", "fill", surface.muted) + rule(".grid", "stroke", surface.grid) +
      rule(".axis", "stroke", surface.muted) + rule(".interval-on-bar", "stroke", surface.ink) +
      rule(".full", "stroke", surface.paper) + rule(".hollow", "fill", surface.paper) +
      rule(".hatch", "stroke", surface.paper) + rule(".on-dark", "fill", surface.paper) +
      rule(".quiet", "fill", surface.grid);
  for (std::size_t i = 0; i < kColours; ++i) {
    rules += rule(".s" + std::to_string(i), "color", colour(i));
  }
  return rules;
}

std::string svg_style() {
  // On paper it is always light: dark is for screens only.
  return "<style>" + std::string(kRules) + surface_rules(kLight, light_colour) +
         "@media screen and (prefers-color-scheme:dark){" + surface_rules(kDark, dark_colour) +
         "}</style>\n";
}

}  // namespace

std::string light_colour(std::size_t series) { return kOnLight[series % kColours]; }

std::string dark_colour(std::size_t series) { return kOnDark[series % kColours]; }

std::string svg_opening(const Canvas& canvas) {
  const std::string described = canvas.description.empty() ? "" : " " + canvas.id + "-text";
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-figure\"",
             attribute("width", canvas.width), attribute("height", canvas.height),
             " viewBox=\"0 0 ", coordinate(canvas.width), ' ', coordinate(canvas.height),
             "\" role=\"img\" aria-labelledby=\"", canvas.id, "-title", described,
             "\">\n<title id=\"", canvas.id, "-title\">", escape_markup(canvas.title),
             "</title>\n") +
         (described.empty() ? ""
                            : "<desc id=\"" + canvas.id + "-text\">" +
                                  escape_markup(canvas.description) + "</desc>\n") +
         svg_style();
}

std::string attribute(const char* name, double value) {
  return concat(' ', name, "=\"", coordinate(value), '"');
}

std::string svg_path(const char* kind, const std::string& lines) {
  return concat("<path class=\"", kind, "\" d=\"", lines, "\"/>\n");
}

std::string svg_text(const PlacedText& text) {
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

}  // namespace lockstep::plot
