#include "lockstep/train/options/duration.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

double seconds_of(char unit) {
  switch (unit) {
    case 'd':
      return 86400;
    case 'h':
      return 3600;
    case 'm':
      return 60;
    case 's':
      return 1;
    default:
      return 0;
  }
}

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidArgument("duration: not a time span above zero: \"" + text +
                        "\"; write 90s, 30m, 2h, 1h30m or seconds");
}

}  // namespace

double parse_duration(const std::string& text) {
  const char* position = text.data();
  const char* const end = position + text.size();
  double total = 0;
  double smallest_unit = INFINITY;
  while (position != end) {
    double number = 0;
    const auto [stop, error] = std::from_chars(position, end, number, std::chars_format::general);
    if (error != std::errc() || number < 0) refuse(text);
    const bool bare = stop == end;
    const double unit = bare ? 1 : seconds_of(*stop);
    // A bare number stands alone, and units fall from left to right: 30m2h and 1h5 are slips, not
    // spans.
    if (unit == 0 || unit >= smallest_unit || (bare && position != text.data())) refuse(text);
    total += number * unit;
    smallest_unit = unit;
    position = bare ? end : stop + 1;
  }
  if (!(total > 0) || !std::isfinite(total)) refuse(text);
  return total;
}

std::string format_duration(double seconds) {
  char text[48];
  if (seconds < 59.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
    return text;
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", hours, minutes, rest);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", minutes, rest);
  }
  return text;
}

}  // namespace lockstep
