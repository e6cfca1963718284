#include "lockstep/data/synthetic/shape.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

struct Shape {
  const char* name;
  std::int64_t (*distance)(Point place);
};

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

constexpr Shape kAll[kShapes] = {
    {"disc", disc},   {"ring", ring}, {"square", square}, {"frame", frame}, {"triangle", triangle},
    {"cross", cross}, {"star", star}, {"bar", bar},       {"pair", pair},   {"crescent", crescent}};

const Shape& at(std::int64_t shape) {
  check(0 <= shape && shape < kShapes, "shape: must be 0 to 9: ", shape);
  return kAll[shape];
}

}  // namespace

const char* shape_name(std::int64_t shape) { return at(shape).name; }

std::int64_t shape_distance(std::int64_t shape, Point place) { return at(shape).distance(place); }

}  // namespace lockstep::data
