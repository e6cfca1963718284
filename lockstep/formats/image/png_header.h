#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/exif.h"
#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/image_options.h"

namespace lockstep {

/// Holds what the chunks of a PNG file say (W3C Portable Network Graphics, third edition).
struct PngHeader {
  ImageSize size;     ///< as stored
  int channels = 3;   ///< samples of a pixel: 1 grey or index, 2 with alpha, 3 RGB, 4 with alpha
  int bit_depth = 8;  ///< bits of a sample
  bool interlaced = false;
  ExifOrientation exif;
};

/// Walks over the chunks up to IEND without looking at the pixels; no memory is allocated.
///
/// A file that is cut, whose chunks leave it, or whose IDAT chunks are too short for its pixels
/// even at deflate's best ratio is a DataError; sizes beyond the limits are, too.
PngHeader read_png_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits = {});

/// Compares the checksum of every chunk; a wrong one is a DataError that names the chunk.
void check_png_checksums(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace lockstep
