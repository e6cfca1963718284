#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// The ways to find a colour between pixels.
enum class Interpolation { kBilinear, kBicubic };

/// Options of resize().
struct ResizeOptions {
  Interpolation interpolation = Interpolation::kBicubic;
  bool flip = false;  ///< left to right
};

/// Scales an image of one or three channels, with antialiasing, to the same bytes as Pillow's
/// Image.resize.
Image resize(const ImageView& image, ImageSize size, const ResizeOptions& options = {});

/// Does the same and gives only that part of the scaled image; nothing else is computed.
Image resize(
    const ImageView& image, ImageSize size, const Box& part, const ResizeOptions& options = {});

}  // namespace lockstep::data
