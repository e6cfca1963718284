#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/png_header.h"

namespace lockstep {

/// Decodes a part of a PNG file, as stored, to RGB; the box must lie in the image.
///
/// Chunks that say how to show the image (colour profiles, gamma, transparent colours) and texts
/// are passed over; no memory is given to them. What libpng only warns of is a DataError.
void decode_png(
    std::span<const std::uint8_t> bytes, const std::string& name, const PngHeader& header,
    const Box& box, Image& out);

}  // namespace lockstep
