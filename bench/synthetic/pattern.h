#pragma once

#include <cstdint>

namespace lockstep::data {

// Lengths are whole numbers: 4,096 to the shorter side of an image, 1,024 to the radius of a shape
// or the period of a texture. So the pixels are the same on every machine, which no sin() of a
// mathematical library promises.
inline constexpr std::int64_t kSide = 4096;
inline constexpr std::int64_t kUnit = 1024;

/// A place in an image, or in a shape's or texture's own plane.
struct Point {
  std::int64_t x = 0;
  std::int64_t y = 0;
};

/// Returns the sine times 1,024 of an angle in 1/1024 of a turn, by Bhaskara's formula: off by 0.2
/// % at most.
std::int64_t sine(std::int64_t angle);
inline std::int64_t cosine(std::int64_t angle) { return sine(angle + kUnit / 4); }

/// Returns the length of a vector, rounded down.
std::int64_t length(Point vector);

/// Divides and rounds towards minus infinity; the divisor must be positive.
inline std::int64_t floor_divide(std::int64_t number, std::int64_t divisor) {
  return number >= 0 ? number / divisor : -((-number + divisor - 1) / divisor);
}

/// A turn, scaling and move that maps a place of the image to one of another plane.
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

/// A shape of radius kUnit around 0. Each is its own mirror image, so that a flip keeps the class.
struct Shape {
  const char* name;
  /// Measures how far a place is outside of the shape; negative inside, about.
  std::int64_t (*distance)(Point place);
};

inline constexpr std::int64_t kShapes = 10;

/// Returns a shape: disc, ring, square, ... A number that none has is an InvalidArgument, here and
/// below.
const Shape& shape_at(std::int64_t number);

/// A texture of period kUnit.
struct Texture {
  const char* name;
  /// Returns how bright a place is, 0 to 255. `salt` changes what has no period.
  std::int64_t (*value)(Point place, std::uint64_t salt);
};

inline constexpr std::int64_t kTextures = 10;

/// Returns a texture: stripes, checks, dots, ...
const Texture& texture_at(std::int64_t number);

}  // namespace lockstep::data
