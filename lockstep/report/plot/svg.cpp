#include "lockstep/report/plot/svg.h"

#include <array>
#include <cstdint>
#include <map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::plot {
namespace {

// Advance widths of DejaVu Sans from the space to the tilde, in thousandths of the size.
constexpr std::array<int, 95> kAscii{318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 501, 838,
    318, 361, 318, 337,                                                               // space to /
    637, 637, 637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 531,   // 0 to ?
    1001, 685, 687, 699, 771, 632, 576, 775, 752, 295, 295, 656, 558, 863, 749, 788,  // @ to O
    604, 788, 695, 635, 611, 732, 685, 989, 686, 611, 686, 391, 337, 391, 838, 501,   // P to _
    501, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580, 278, 975, 634, 612,   // ` to o
    635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838};       // p to ~
constexpr double kWidthMargin = 1.03;
constexpr double kBold = 1.15;

// Of other writing the widest usual letter: a little too much room does no harm.
double thousandths(const std::string& point) {
  const auto first = static_cast<std::uint8_t>(point.front());
  if (point.size() == 1) return kAscii[first - 0x20U];
  if (first < 0xc6) return 700;       // Latin with accents, signs
  if (point.size() == 2) return 950;  // Greek, Cyrillic, Hebrew, Arabic
  if (first == 0xe2 && static_cast<std::uint8_t>(point[1]) < 0x83)
    return 800;                            // dashes, superscripts
  return point.size() == 3 ? 1100 : 1400;  // signs, Chinese, Japanese, Korean; pictures
}

double width_of(const std::string& point, TextSize size) {
  return thousandths(point) / 1000 * size.pixels * kWidthMargin * (size.bold ? kBold : 1);
}

/// Fills lines from left to right.
class Lines {
 public:
  Lines(double width, TextSize size) : width_(width), size_(size) {}

  void add(const std::string& point) {
    const double added = width_of(point, size_);
    if (used_ + added > width_ && !lines_.back().empty()) break_line(point == " ");
    if (point == " ") {
      if (lines_.back().empty()) return;
      last_space_ = lines_.back().size();
      width_at_space_ = used_ + added;
    }
    lines_.back() += point;
    used_ += added;
  }

  std::vector<std::string> done() {
    trim(lines_.back());
    return std::move(lines_);
  }

 private:
  static void trim(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

  // Takes what stands behind the last space to the next line.
  void break_line(bool at_space) {
    std::string rest;
    double rest_width = 0;
    if (!at_space && last_space_ != 0) {
      rest = lines_.back().substr(last_space_ + 1);
      rest_width = used_ - width_at_space_;
      lines_.back().resize(last_space_);
    }
    trim(lines_.back());
    lines_.push_back(std::move(rest));
    used_ = rest_width;
    last_space_ = 0;
  }

  double width_;
  TextSize size_;
  std::vector<std::string> lines_{""};
  double used_ = 0;
  std::size_t last_space_ = 0;  // none: 0, for a line never begins with one
  double width_at_space_ = 0;
};

constexpr const char* kReplacement = "\xef\xbf\xbd";

std::size_t length_by_first(std::uint8_t first) {
  if (first < 0xc0) return 1;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}

// XML has neither the controls of C0 nor U+FFFE and U+FFFF; those of C1 no font can show.
bool is_control(const std::string& point) {
  const auto byte = [&](std::size_t place) { return static_cast<std::uint8_t>(point[place]); };
  if (point.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (point.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;
  return point == "\xef\xbf\xbe" || point == "\xef\xbf\xbf";
}

bool is_space(const std::string& point) { return point == "\t" || point == "\n" || point == "\r"; }

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

double text_width(std::string_view text, TextSize size) {
  double width = 0;
  for (const std::string& point : code_points(text)) width += width_of(point, size);
  return width;
}

std::vector<std::string> wrap(std::string_view text, double width, TextSize size) {
  Lines lines(width, size);
  for (const std::string& point : code_points(text)) lines.add(point);
  return lines.done();
}

std::vector<std::string> code_points(std::string_view text) {
  std::vector<std::string> points;
  while (!text.empty()) {
    std::string point(text.substr(0, length_by_first(static_cast<std::uint8_t>(text.front()))));
    const bool valid = is_utf8(point);
    text.remove_prefix(valid ? point.size() : 1);
    if (valid && is_space(point)) {
      point = " ";
    } else if (!valid || is_control(point)) {
      point = kReplacement;
    }
    points.push_back(std::move(point));
  }
  return points;
}

std::string escape_markup(std::string_view text) {
  static const std::map<std::string, std::string> kEscapes{
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}};
  std::string escaped;
  for (const std::string& point : code_points(text)) {
    const auto found = kEscapes.find(point);
    escaped += found == kEscapes.end() ? point : found->second;
  }
  return escaped;
}

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
