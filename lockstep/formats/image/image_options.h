#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep {

/// Bounds what a file may ask for; checked after its header and before memory is allocated.
struct ImageLimits {
  std::int64_t side = 16'384;                   ///< pixels
  std::int64_t pixels = std::int64_t{1} << 26;  ///< 8192 x 8192
  int scans = 200;  ///< of a progressive JPEG: each costs a pass over the whole image
};

/// Says how an image file is read.
struct ImageOptions {
  /// Turns the image as its EXIF data says. Off: the rows as they are stored, which is what
  /// torchvision and timm train on.
  bool apply_orientation = true;
  ImageLimits limits = {};
};

/// Throws a DataError that names file and offset if an image is empty or beyond the limits.
void check_limits(
    ImageSize size, const ImageLimits& limits, const std::string& name, std::int64_t offset);

}  // namespace lockstep
