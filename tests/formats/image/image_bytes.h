#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/formats/idx_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/image/jpeg.h"
#include "lockstep/formats/image/png.h"

namespace lockstep::testing {

/// Makes smooth colours with hard edges, which show how colour is upsampled.
Image picture(ImageSize size, std::int64_t channels = 3);

/// Makes a file of a picture.
Bytes jpeg(ImageSize size = {45, 35}, const JpegOptions& options = {});
Bytes png(ImageSize size = {45, 35}, std::int64_t channels = 3);

Bytes bytes_of(const std::string& text);
void append(Bytes& bytes, const Bytes& more);
Bytes inserted(Bytes bytes, std::size_t at, const Bytes& more);
Bytes deflated(const Bytes& bytes);

/// Makes a segment of a JPEG file.
Bytes segment(int marker, const Bytes& content);

/// Makes the frame segment of a JPEG file.
Bytes jpeg_frame(
    int marker, std::uint32_t width, std::uint32_t height, int bits = 8, int components = 3);

/// Finds the first segment of a JPEG file with this marker.
std::size_t find_segment(const Bytes& jpeg, int marker);

/// Puts a segment behind the first marker of a JPEG file.
Bytes with_segment(const Bytes& jpeg, int marker, const Bytes& content);

/// Makes a chunk of a PNG file.
Bytes chunk(const std::string& type, const Bytes& content);

/// Makes the header chunk of a PNG file.
Bytes png_header(std::uint32_t width, std::uint32_t height, int depth = 8, int colour_type = 2,
    int interlace = 0);

/// Makes a PNG file of a header chunk, others, the rows with their filter bytes.
Bytes png_file(const Bytes& header, const Bytes& others, const Bytes& rows);

/// Makes a PNG file of chunks.
Bytes png_of_chunks(const std::vector<Bytes>& chunks);

/// Puts a chunk behind the first chunk of a PNG file.
Bytes with_chunk(const Bytes& png, const std::string& type, const Bytes& content);

/// Returns each chunk of a PNG file the checksum of what it holds, as long as chunks follow each
/// other.
Bytes with_true_checksums(Bytes png);

/// Makes EXIF data with nothing but an orientation.
Bytes exif(int orientation, bool is_little = true);

/// Makes the content of a JPEG file's segment of these EXIF data.
Bytes exif_segment_content(const Bytes& tiff);

}  // namespace lockstep::testing
