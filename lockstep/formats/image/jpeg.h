#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/image/image.h"

namespace lockstep {

/// Reads the marker segments of a JPEG file (ITU T.81, annex B) up to its first scan; no memory is
/// allocated. An image of 4 channels is CMYK.
///
/// Lossless, hierarchical and arithmetic coding, 12 bits a sample, and 2 or more than 4 components
/// are refused by name, sizes beyond the limits too. So are files too short for one bit a block of
/// their largest component, which the Huffman coding of any scan needs: a small file cannot ask for
/// much memory.
ImageInfo read_jpeg_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits = {});

/// Decodes a part of a JPEG file, as stored, to RGB; the box must lie in the image.
///
/// What libjpeg only warns of (damaged codes, missing data) is a DataError, and so are more scans
/// than the limit.
void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name,
    const ImageInfo& header, int scan_limit, const Box& box, Image& out);

/// Options of encode_jpeg().
struct JpegOptions {
  int quality = 90;                ///< 1 to 100, as libjpeg and Pillow count it
  int horizontal_subsampling = 2;  ///< pixels for one sample of colour: 1, 2 or 4
  int vertical_subsampling = 2;    ///< rows for one sample of colour: 1 or 2
  bool progressive = false;
  int restart_rows = 0;  ///< rows of blocks between restart markers; 0: none
};

/// Makes a JPEG file of an image with 3 channels (RGB) or 1 (grey).
///
/// Sides above 65,500, other channels or options outside of their ranges are an InvalidArgument.
std::vector<std::uint8_t> encode_jpeg(const ImageView& image, const JpegOptions& options = {});

}  // namespace lockstep
