#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/image/image.h"

namespace lockstep {

/// Walks over the chunks of a PNG file (W3C Portable Network Graphics, third edition) up to IEND
/// without looking at the pixels; no memory is allocated.
///
/// A file that is cut, whose chunks leave it, or whose IDAT chunks are too short for its pixels
/// even at deflate's best ratio is a DataError; sizes beyond the limits are, too.
ImageInfo read_png_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits = {});

/// Decodes a part of a PNG file, as stored, to RGB; the box must lie in the image.
///
/// Chunks that say how to show the image (colour profiles, gamma, transparent colours) and texts
/// are passed over; no memory is given to them. What libpng only warns of is a DataError.
void decode_png(std::span<const std::uint8_t> bytes, const std::string& name,
    const ImageInfo& header, const Box& box, Image& out);

/// Makes a PNG file of 8 bits a channel: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
std::vector<std::uint8_t> encode_png(const ImageView& image);

}  // namespace lockstep
