#include "lockstep/data/transforms/centre_crop.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// As Python's round(): halves to even.
std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

double as_double(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

ImageSize size_around(ImageSize image, ImageSize output, double fraction) {
  const auto scaled = [fraction](std::int64_t side) {
    return static_cast<std::int64_t>(std::floor(as_double(side) / fraction));
  };
  const ImageSize wanted{scaled(output.width), scaled(output.height)};
  const auto [width, height] = image;
  if (wanted.width == wanted.height) {
    const std::int64_t side = wanted.width;
    if (width <= height) return {side, side * height / width};
    return {side * width / height, side};
  }
  const double ratio = std::min(
      as_double(height) / as_double(wanted.height), as_double(width) / as_double(wanted.width));
  return {rounded(as_double(width) / ratio), rounded(as_double(height) / ratio)};
}

Box centre_box(ImageSize size, ImageSize part) {
  check(
      part.width <= size.width && part.height <= size.height, "centre_box: the image of ",
      size.width, " x ", size.height, " must hold ", part.width, " x ", part.height);
  return {
      rounded(as_double(size.width - part.width) / 2),
      rounded(as_double(size.height - part.height) / 2), part.width, part.height};
}

}  // namespace lockstep::data
