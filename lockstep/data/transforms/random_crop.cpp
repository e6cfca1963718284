#include "lockstep/data/transforms/random_crop.h"

#include <cmath>

namespace lockstep::data {
namespace {

constexpr int kTries = 10;

// As Python's round(): halves to even.
std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

double as_double(std::int64_t count) { return static_cast<double>(count); }

// The largest part in the centre whose ratio is allowed.
Box allowed_centre(ImageSize size, const RandomArea& area) {
  const double ratio = as_double(size.width) / as_double(size.height);
  ImageSize part = size;
  if (ratio < area.least_ratio) part.height = rounded(as_double(size.width) / area.least_ratio);
  if (ratio > area.most_ratio) part.width = rounded(as_double(size.height) * area.most_ratio);
  return {(size.width - part.width) / 2, (size.height - part.height) / 2, part.width, part.height};
}

}  // namespace

Box random_area_box(ImageSize size, const RandomArea& area, RandomStream& stream) {
  const double pixels = as_double(size.width) * as_double(size.height);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double share = stream.uniform(area.least_share, area.most_share) * pixels;
    const double ratio =
        std::exp(stream.uniform(std::log(area.least_ratio), std::log(area.most_ratio)));
    const ImageSize part{rounded(std::sqrt(share * ratio)), rounded(std::sqrt(share / ratio))};
    if (part.width == 0 || part.height == 0) continue;
    if (part.width <= size.width && part.height <= size.height)
      return random_box(size, part, stream);
  }
  return allowed_centre(size, area);
}

Box random_box(ImageSize size, ImageSize part, RandomStream& stream) {
  const std::int64_t top = stream.integer(0, size.height - part.height);
  const std::int64_t left = stream.integer(0, size.width - part.width);
  return {left, top, part.width, part.height};
}

}  // namespace lockstep::data
