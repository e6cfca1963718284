#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/image_file.h"
#include "lockstep/formats/image/orientation.h"

namespace lockstep {

/// The part of a JPEG file before its first scan (ITU T.81, annex B).
struct JpegHeader {
  ImageSize size;    ///< as stored
  int channels = 3;  ///< 1 grey, 3 colour, 4 CMYK
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

/// Decodes a part of a JPEG file, as stored, to RGB; the box must lie in the image.
///
/// What libjpeg only warns of (damaged codes, missing data) is a DataError, and so are more scans
/// than the limit.
void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name,
    const JpegHeader& header, int scan_limit, const Box& box, Image& out);

}  // namespace lockstep
