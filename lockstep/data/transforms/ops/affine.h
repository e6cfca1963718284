#pragma once

#include <array>
#include <cstdint>
#include <span>

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

/// The colour of places between pixels and outside of the image.
struct AffineOptions {
  Interpolation interpolation = Interpolation::kBicubic;
  std::array<std::uint8_t, 3> fill = {};
};

/// Maps an image of three channels to one of the same size, with the same bytes as Pillow's
/// Image.transform.
Image transform_affine(const ImageView& image, const AffineMap& map, const AffineOptions& options);

/// The input of an affine map to a kernel: four floats a pixel, the fourth 0, and two pixels beyond
/// each border that repeat it, so that no neighbour need be checked.
struct AffineSource {
  const float* origin;  ///< the image's own first pixel
  std::int64_t stride;  ///< floats from one row to the next
  std::int64_t width;
  std::int64_t height;
};

inline constexpr std::int64_t kAffineBorder = 2;

/// One instruction set's way to map a row of the output; all give the same bytes. Pixels of the row
/// that lie outside of the input are left as they are.
struct AffineKernel {
  const char* name;
  void (*bilinear_row)(
      const AffineSource& source, const AffineMap& map, std::int64_t y, std::uint8_t* out);
  void (*bicubic_row)(
      const AffineSource& source, const AffineMap& map, std::int64_t y, std::uint8_t* out);
};

/// Lists the kernels that may run, the fastest last.
std::span<const AffineKernel* const> affine_kernels();

const AffineKernel& plain_affine_kernel();
const AffineKernel& avx2_affine_kernel();
const AffineKernel& avx512_affine_kernel();

/// Does what transform_affine() does by a kernel of choice.
Image transform_affine_by(const AffineKernel& kernel, const ImageView& image, const AffineMap& map,
    const AffineOptions& options);

}  // namespace lockstep::data
