#include "lockstep/data/synthetic/plane.h"

#include <cmath>

namespace lockstep::data {

std::int64_t sine(std::int64_t angle) {
  constexpr std::int64_t kHalf = kUnit / 2;
  const std::int64_t whole = angle & (kUnit - 1);
  const std::int64_t half = whole & (kHalf - 1);
  const std::int64_t product = half * (kHalf - half);
  const std::int64_t value = 16 * product * kUnit / (5 * kHalf * kHalf - 4 * product);
  return whole < kHalf ? value : -value;
}

std::int64_t length(Point vector) {
  // IEEE 754 requires the square root to be exact but for its rounding.
  return static_cast<std::int64_t>(
      std::sqrt(static_cast<double>(vector.x * vector.x + vector.y * vector.y)));
}

Placement::Placement(Point centre, std::int64_t scale, std::int64_t angle)
    : centre_(centre),
      along_(cosine(angle) * (std::int64_t{1} << kShift) / scale),
      across_(sine(angle) * (std::int64_t{1} << kShift) / scale) {}

}  // namespace lockstep::data
