#pragma once

#include <cstdint>

#include "lockstep/data/synthetic/plane.h"

namespace lockstep::data {

inline constexpr std::int64_t kShapes = 10;

/// Names a shape: disc, ring, square, ...
const char* shape_name(std::int64_t shape);

/// Measures how far a place is outside of a shape of radius kUnit around 0; negative inside, about.
///
/// Every shape is its own mirror image, so that a flip keeps the class.
std::int64_t shape_distance(std::int64_t shape, Point place);

}  // namespace lockstep::data
