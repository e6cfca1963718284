#pragma once

#include <cstdint>

namespace lockstep::data {

// Lengths are whole numbers: 4,096 to the shorter side of an image, 1,024 to the radius of a shape
// or the period of a texture. So the pixels are the same on every machine, which no sin() of a
// mathematical library promises.
inline constexpr std::int64_t kSide = 4096;
inline constexpr std::int64_t kUnit = 1024;

/// Is a place in an image, or in a shape's or texture's own plane.
struct Point {
  std::int64_t x = 0;
  std::int64_t y = 0;
};

/// Gives the sine times 1,024 of an angle in 1/1024 of a turn, by Bhaskara's formula: off by 0.2 %
/// at most.
std::int64_t sine(std::int64_t angle);
inline std::int64_t cosine(std::int64_t angle) { return sine(angle + kUnit / 4); }

/// Gives the length of a vector, rounded down.
std::int64_t length(Point vector);

/// Divides and rounds towards minus infinity; the divisor must be positive.
inline std::int64_t floor_divide(std::int64_t number, std::int64_t divisor) {
  return number >= 0 ? number / divisor : -((-number + divisor - 1) / divisor);
}

/// Turns, scales and moves: a place of the image becomes one of a plane of its own.
class Placement {
 public:
  /// `scale` becomes kUnit long; the angle is in 1/1024 of a turn.
  Placement(Point centre, std::int64_t scale, std::int64_t angle);

  Point operator()(Point place) const {
    const std::int64_t x = place.x - centre_.x;
    const std::int64_t y = place.y - centre_.y;
    return {(x * along_ + y * across_) >> kShift, (y * along_ - x * across_) >> kShift};
  }

 private:
  static constexpr int kShift = 20;

  Point centre_;
  std::int64_t along_;
  std::int64_t across_;
};

}  // namespace lockstep::data
