#include "lockstep/report/plot/palette.h"

#include <array>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"
#include "lockstep/report/plot/ticks.h"

namespace lockstep::bench::plot {
namespace {

// Blue, vermillion, green, purple, orange, sky blue, black.
constexpr std::array<const char*, kColours> kOnLight{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c08400", "#3a97d0", kLight.ink};
constexpr std::array<const char*, kColours> kOnDark{
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", kDark.ink};

constexpr std::array kLineDashes{"", "9 3", "14 3 4 3", "5 3", "16 4", "9 3 3 3 3 3"};
constexpr std::array kDashedDashes{"2 4", "2 3 6 3", "4 4", "2 6"};
constexpr std::array kHatches{"", "M-2 2L2 -2M0 8L8 0M6 10L10 6", "M0 2H8M0 6H8",
    "M-2 6L2 10M0 0L8 8M6 -2L10 2", "M2 0V8M6 0V8",
    "M-2 2L2 -2M0 8L8 0M6 10L10 6M-2 6L2 10M0 0L8 8M6 -2L10 2", "M0 4H8M4 0V8"};

struct Shape {
  int corners;
  double radius;
  double turn;   // of the first corner, in degrees clockwise from the right
  double waist;  // radius between two corners in shares of it; 1: none
};

constexpr std::array kShapes{Shape{0, 4.2, 0, 1},  // circle
    Shape{4, 5.4, 45, 1},                          // square
    Shape{3, 5.8, -90, 1},                         // triangle
    Shape{4, 5.8, 0, 1},                           // diamond
    Shape{3, 5.8, 90, 1},                          // triangle on its head
    Shape{5, 6.4, -90, 0.42},                      // star
    Shape{6, 5.2, 0, 1},                           // hexagon
    Shape{4, 6.6, 45, 0.33}};                      // cross

std::string corner(double radius, double degrees) {
  const double angle = degrees / 180 * std::numbers::pi;
  return concat(coordinate(radius * std::cos(angle)), ' ', coordinate(radius * std::sin(angle)));
}

}  // namespace

std::string light_colour(std::size_t series) { return kOnLight[series % kColours]; }

std::string dark_colour(std::size_t series) { return kOnDark[series % kColours]; }

std::string marker_path(std::size_t series) {
  const Shape& shape = kShapes[series % kShapes.size()];
  if (shape.corners == 0) {
    const std::string r = coordinate(shape.radius);
    const std::string d = coordinate(2 * shape.radius);
    return concat("M-", r, " 0a", r, ' ', r, " 0 1 0 ", d, " 0a", r, ' ', r, " 0 1 0 -", d, " 0z");
  }
  std::string path;
  for (int i = 0; i < shape.corners; ++i) {
    const double step = 360.0 / shape.corners;
    path += i == 0 ? 'M' : 'L';
    path += corner(shape.radius, shape.turn + i * step);
    if (shape.waist < 1) {
      path += 'L';
      path += corner(shape.radius * shape.waist, shape.turn + (i + 0.5) * step);
    }
  }
  return path + "z";
}

std::string line_dashes(std::size_t series) { return kLineDashes[series % kLineDashes.size()]; }

std::string dashed_dashes(std::size_t series) {
  return kDashedDashes[series % kDashedDashes.size()];
}

std::string hatch_path(std::size_t series) { return kHatches[series % kHatches.size()]; }

}  // namespace lockstep::bench::plot
