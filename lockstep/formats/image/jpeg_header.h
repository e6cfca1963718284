#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/exif.h"
#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/image_options.h"

namespace lockstep {

/// Holds what stands before the first scan of a JPEG file (ITU T.81, annex B).
struct JpegHeader {
  ImageSize size;      ///< as stored
  int components = 3;  ///< 1 grey, 3 colour, 4 CMYK
  bool progressive = false;
  ExifOrientation exif;
  std::size_t first_scan = 0;  ///< the offset of its marker
};

/// Reads the marker segments up to the first scan; no memory is allocated.
///
/// Lossless, hierarchical and arithmetic coding, 12 bits a sample, and 2 or more than 4 components
/// are refused by name, sizes beyond the limits too. So are files too short for one bit a block of
/// their largest component, which the Huffman coding of any scan needs: a small file cannot ask for
/// much memory.
JpegHeader read_jpeg_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits = {});

}  // namespace lockstep
