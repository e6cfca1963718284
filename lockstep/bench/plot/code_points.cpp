#include "lockstep/bench/plot/code_points.h"

#include <cstddef>
#include <cstdint>

#include "lockstep/core/utf8.h"

namespace lockstep::bench::plot {
namespace {

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
  std::string escaped;
  for (const std::string& point : code_points(text)) {
    if (point == "&") {
      escaped += "&amp;";
    } else if (point == "<") {
      escaped += "&lt;";
    } else if (point == ">") {
      escaped += "&gt;";
    } else if (point == "\"") {
      escaped += "&quot;";
    } else if (point == "'") {
      escaped += "&#39;";
    } else {
      escaped += point;
    }
  }
  return escaped;
}

}  // namespace lockstep::bench::plot
