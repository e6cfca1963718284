#pragma once

#include <array>
#include <cstdint>

#include "lockstep/data/transforms/ops/resample.h"

namespace lockstep::data {

/// A map from the centre (x, y) of an output pixel to the place in the input whose colour it gets:
/// (xx x + xy y + x0, yx x + yy y + y0).
struct AffineMap {
  double xx = 1;
  double xy = 0;
  double x0 = 0;
  double yx = 0;
  double yy = 1;
  double y0 = 0;
};

/// Returns the map that turns an image about its centre, counter-clockwise, in the arithmetic of
/// Pillow's Image.rotate.
AffineMap rotation(ImageSize size, double degrees);

/// How places between pixels and outside of the image are coloured.
struct AffineOptions {
  Interpolation interpolation = Interpolation::kBicubic;
  std::array<std::uint8_t, 3> fill = {};
};

/// Maps an image of three channels to one of the same size, with the same bytes as Pillow's
/// Image.transform.
Image transform_affine(const ImageView& image, const AffineMap& map, const AffineOptions& options);

}  // namespace lockstep::data
