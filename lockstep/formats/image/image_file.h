#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep {

/// The kinds of image files that are read.
enum class ImageKind { kJpeg, kPng };

/// Finds the kind by the first bytes, whatever the file is called.
///
/// An empty file and every other kind is a DataError; the usual ones are named (GIF, WebP, HTML,
/// text, ...).
ImageKind image_kind(std::span<const std::uint8_t> bytes, const std::string& name);

/// Limits of what a file may ask for; checked after its header and before memory is allocated.
struct ImageLimits {
  std::int64_t side = 16'384;                   ///< pixels
  std::int64_t pixels = std::int64_t{1} << 26;  ///< 8192 x 8192
  int scans = 200;  ///< of a progressive JPEG: each costs a pass over the whole image
};

/// Options of reading an image file.
struct ImageOptions {
  /// Turns the image as its EXIF data says. Off: the rows as they are stored, which is what
  /// torchvision and timm train on.
  bool apply_orientation = true;
  ImageLimits limits = {};
};

/// Throws a DataError that names file and offset if an image is empty or beyond the limits.
void check_limits(
    ImageSize size, const ImageLimits& limits, const std::string& name, std::uint64_t offset);

}  // namespace lockstep
