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

inline constexpr std::int64_t kShapes = 10;

/// Names a shape: disc, ring, square, ...
const char* shape_name(std::int64_t shape);

/// Measures how far a place is outside of a shape of radius kUnit around 0; negative inside, about.
///
/// Every shape is its own mirror image, so that a flip keeps the class.
std::int64_t shape_distance(std::int64_t shape, Point place);

inline constexpr std::int64_t kTextures = 10;

/// Names a texture: stripes, checks, dots, ...
const char* texture_name(std::int64_t texture);

/// Returns how bright a texture of period kUnit is at a place, 0 to 255. `salt` changes what has no
/// period.
std::int64_t texture_value(std::int64_t texture, Point place, std::uint64_t salt);

/// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood, 2014).
class SyntheticStream {
 public:
  explicit SyntheticStream(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    return mix(state_);
  }

  /// Draws a number of [first, last], which must lie closer together than 2^32.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    const auto count = static_cast<std::uint64_t>(last - first + 1);
    return first + static_cast<std::int64_t>((next() >> 32) * count >> 32);
  }

  /// Turns a number into another one of which every bit depends on all of its bits.
  static std::uint64_t mix(std::uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
  }

 private:
  std::uint64_t state_;
};

}  // namespace lockstep::data
