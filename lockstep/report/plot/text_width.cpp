#include "lockstep/report/plot/text_width.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "lockstep/core/text.h"

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

}  // namespace lockstep::plot
