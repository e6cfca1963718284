#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/formats/image/image.h"

namespace lockstep {

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

/// Makes a PNG file of 8 bits a channel: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
std::vector<std::uint8_t> encode_png(const ImageView& image);

}  // namespace lockstep
