#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/jpeg_header.h"

namespace lockstep {

/// Decodes a part of a JPEG file, as stored, to RGB; the box must lie in the image.
///
/// What libjpeg only warns of (damaged codes, missing data) is a DataError, and so are more scans
/// than the limit.
void decode_jpeg(
    std::span<const std::uint8_t> bytes, const std::string& name, const JpegHeader& header,
    int scan_limit, const Box& box, Image& out);

}  // namespace lockstep
