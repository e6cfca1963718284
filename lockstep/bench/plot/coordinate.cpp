#include "lockstep/bench/plot/coordinate.h"

#include <array>
#include <charconv>
#include <cmath>

namespace lockstep::bench::plot {

std::string coordinate(double pixels) {
  const double rounded = std::round(pixels * 100) / 100 + 0.0;  // no negative zero
  std::array<char, 64> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), rounded, std::chars_format::fixed, 2);
  std::string digits(text.data(), end.ptr);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

}  // namespace lockstep::bench::plot
