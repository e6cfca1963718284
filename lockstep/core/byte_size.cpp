#include "lockstep/core/byte_size.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr double kMostBytes = 0x1p50;

[[noreturn]] void refuse_bytes(const std::string& text) {
  throw InvalidArgument(
      concat("bytes: must be an amount such as 2G, 1.5G, 500M, 64K, or a number of bytes, at most ",
          "1024T: ", printable(text)));
}

// Empty without a unit, 0 for one that is none.
double unit_of(std::string_view letter) {
  if (letter.empty()) return 1;
  const auto place = std::string_view("KMGT").find(letter);
  if (letter.size() != 1 || place == std::string_view::npos) return 0;
  return std::pow(1024., static_cast<double>(place + 1));
}

}  // namespace

std::int64_t parse_bytes(const std::string& text) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const double unit = unit_of({stop, static_cast<std::size_t>(end - stop)});
  const bool is_amount = error == std::errc() && unit > 0 && !std::signbit(number);
  if (!is_amount || !(number * unit <= kMostBytes)) refuse_bytes(text);
  return std::llround(number * unit);
}

}  // namespace lockstep
