#include "bench/synthetic/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/core/error.h"
#include "lockstep/data/split_mix.h"

namespace lockstep::data {
namespace {

std::int64_t larger_side(Point place) { return std::max(std::abs(place.x), std::abs(place.y)); }

std::int64_t disc(Point place) { return length(place) - kUnit; }

std::int64_t ring(Point place) { return std::abs(length(place) - 800) - 224; }

std::int64_t square(Point place) { return larger_side(place) - 900; }

std::int64_t frame(Point place) { return std::abs(larger_side(place) - 740) - 160; }

/// Has its corners on the circle of radius kUnit; 887 / 1024 is the sine of 60 degrees.
std::int64_t triangle(Point place) {
  const std::int64_t slope = (887 * std::abs(place.x) - 512 * place.y) / kUnit;
  return std::max(place.y, slope) - 512;
}

std::int64_t cross(Point place) {
  const std::int64_t x = std::abs(place.x);
  const std::int64_t y = std::abs(place.y);
  return std::min(std::max(x - 300, y - kUnit), std::max(x - kUnit, y - 300));
}

/// Has four points: |x|^(1/2) + |y|^(1/2) = r^(1/2), a little rounded.
std::int64_t star(Point place) {
  const auto root = [](std::int64_t side) {
    return static_cast<std::int64_t>(std::sqrt(static_cast<double>(std::abs(side) * kUnit)));
  };
  return (root(place.x) + root(place.y) - 1150) * 3 / 4;
}

std::int64_t bar(Point place) {
  return std::max(std::abs(place.x) - kUnit, std::abs(place.y) - 290);
}

std::int64_t pair(Point place) { return length({std::abs(place.x) - 580, place.y}) - 420; }

std::int64_t crescent(Point place) {
  return std::max(length(place) - kUnit, 800 - length({place.x - 500, place.y}));
}

constexpr Shape kAllShapes[kShapes] = {{"disc", disc}, {"ring", ring}, {"square", square},
    {"frame", frame}, {"triangle", triangle}, {"cross", cross}, {"star", star}, {"bar", bar},
    {"pair", pair}, {"crescent", crescent}};

constexpr std::int64_t kBrightest = 255;

/// Brings a wave of -1024 to 1024, made steeper, to 0 to 255.
std::int64_t bright(std::int64_t wave, std::int64_t steepness) {
  return std::clamp<std::int64_t>(128 + wave * steepness / 8, 0, kBrightest);
}

std::int64_t modulo(std::int64_t number, std::int64_t period) {
  return number - floor_divide(number, period) * period;
}

/// Rises from 0 to 512 and falls again, once a period.
std::int64_t zigzag(std::int64_t x) { return 512 - std::abs(modulo(x, kUnit) - 512); }

/// Is bright on a line in the middle of each period.
std::int64_t line(std::int64_t x, std::int64_t period) {
  const std::int64_t away = std::abs(modulo(x, period) - period / 2);
  return std::clamp<std::int64_t>((200 - away) * 3, 0, kBrightest);
}

std::int64_t stripes(Point place, std::uint64_t) { return bright(sine(place.x), 2); }

std::int64_t checks(Point place, std::uint64_t) {
  return bright(sine(place.x) * sine(place.y) / kUnit, 4);
}

std::int64_t dots(Point place, std::uint64_t) {
  return bright(sine(place.x) + sine(place.y) - 900, 2);
}

std::int64_t rings(Point place, std::uint64_t) { return bright(sine(length(place)), 2); }

std::int64_t waves(Point place, std::uint64_t) {
  return bright(sine(place.y + 2 * zigzag(place.x / 2)), 2);
}

std::int64_t grid(Point place, std::uint64_t) {
  return std::max(line(place.x, kUnit), line(place.y, kUnit));
}

std::int64_t bricks(Point place, std::uint64_t) {
  const std::int64_t row = floor_divide(place.y, kUnit);
  const std::int64_t shift = (row & 1) * kUnit;
  return std::max(line(place.y + kUnit / 2, kUnit), line(place.x + shift, 2 * kUnit));
}

/// Draws the value of a point of the lattice.
std::int64_t lattice(std::int64_t x, std::int64_t y, std::uint64_t salt) {
  const auto place = static_cast<std::uint64_t>(x) << 32 ^ static_cast<std::uint64_t>(y);
  return static_cast<std::int64_t>(SplitMix::mix(place ^ salt) >> 56);
}

/// Goes smoothly from one value to the other while `part` goes from 0 to kUnit.
std::int64_t blend(std::int64_t from, std::int64_t to, std::int64_t part) {
  const std::int64_t smooth = part * part / kUnit * (3 * kUnit - 2 * part) / kUnit;
  return from + (to - from) * smooth / kUnit;
}

/// Is smooth noise, of one lattice point a period.
std::int64_t blotches(Point place, std::uint64_t salt) {
  const std::int64_t x = floor_divide(place.x, kUnit);
  const std::int64_t y = floor_divide(place.y, kUnit);
  const std::int64_t part = place.x - x * kUnit;
  const std::int64_t above = blend(lattice(x, y, salt), lattice(x + 1, y, salt), part);
  const std::int64_t below = blend(lattice(x, y + 1, salt), lattice(x + 1, y + 1, salt), part);
  return blend(above, below, place.y - y * kUnit);
}

/// Is rough noise: small squares, bright or dark.
std::int64_t speckles(Point place, std::uint64_t salt) {
  constexpr std::int64_t kGrain = kUnit / 3;
  const std::int64_t value =
      lattice(floor_divide(place.x, kGrain), floor_divide(place.y, kGrain), salt);
  return value < 128 ? 0 : kBrightest;
}

std::int64_t slope(Point place, std::uint64_t) {
  return std::clamp<std::int64_t>(128 + place.x / 40, 0, kBrightest);
}

constexpr Texture kAllTextures[kTextures] = {{"stripes", stripes}, {"checks", checks},
    {"dots", dots}, {"rings", rings}, {"waves", waves}, {"blotches", blotches},
    {"speckles", speckles}, {"grid", grid}, {"bricks", bricks}, {"slope", slope}};

}  // namespace

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

const Shape& shape_at(std::int64_t number) {
  check(0 <= number && number < kShapes, "shape: must be 0 to 9: ", number);
  return kAllShapes[number];
}

const Texture& texture_at(std::int64_t number) {
  check(0 <= number && number < kTextures, "texture: must be 0 to 9: ", number);
  return kAllTextures[number];
}

}  // namespace lockstep::data
