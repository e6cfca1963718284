#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <zlib.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_encoder.h"

namespace lockstep::testing {

using Bytes = std::vector<std::uint8_t>;

/// Makes smooth colours with hard edges, which show how colour is upsampled.
inline Image picture(ImageSize size, std::int64_t channels = 3) {
  Image image = Image::of_size(size, channels);
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      const std::int64_t edge = (x / 5 + y / 7) % 2 * 255;
      const std::int64_t values[] = {x * 5, y * 7 + edge, edge + x * y, 255 - x};
      for (std::int64_t c = 0; c < channels; ++c) {
        image.row(y)[x * channels + c] = static_cast<std::uint8_t>(values[c]);
      }
    }
  }
  return image;
}

inline Bytes jpeg(ImageSize size = {45, 35}, const JpegOptions& options = {}) {
  return encode_jpeg(picture(size).view(), options);
}

inline Bytes png(ImageSize size = {45, 35}, std::int64_t channels = 3) {
  return encode_png(picture(size, channels).view());
}

inline void append_big_endian(Bytes& bytes, std::uint32_t number, int width) {
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
  }
}

inline void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

inline Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/// Makes a segment of a JPEG file.
inline Bytes segment(std::uint8_t marker, const Bytes& content) {
  Bytes bytes{0xff, marker};
  append_big_endian(bytes, static_cast<std::uint32_t>(content.size() + 2), 2);
  append(bytes, content);
  return bytes;
}

/// Makes a chunk of a PNG file.
inline Bytes chunk(const std::string& type, const Bytes& content) {
  Bytes bytes;
  append_big_endian(bytes, static_cast<std::uint32_t>(content.size()), 4);
  append(bytes, bytes_of(type));
  append(bytes, content);
  const auto checksum = crc32_z(0, bytes.data() + 4, bytes.size() - 4);
  append_big_endian(bytes, static_cast<std::uint32_t>(checksum), 4);
  return bytes;
}

inline Bytes inserted(Bytes bytes, std::size_t at, const Bytes& more) {
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return bytes;
}

/// Puts a segment behind the first marker of a JPEG file.
inline Bytes with_segment(const Bytes& jpeg, std::uint8_t marker, const Bytes& content) {
  return inserted(jpeg, 2, segment(marker, content));
}

constexpr std::size_t kAfterHeaderChunk = 33;

/// Puts a chunk behind the first chunk of a PNG file.
inline Bytes with_chunk(const Bytes& png, const std::string& type, const Bytes& content) {
  return inserted(png, kAfterHeaderChunk, chunk(type, content));
}

/// Makes the header chunk of a PNG file.
inline Bytes png_header(
    std::uint32_t width,
    std::uint32_t height,
    std::uint8_t depth = 8,
    std::uint8_t colour_type = 2,
    std::uint8_t interlace = 0) {
  Bytes content;
  append_big_endian(content, width, 4);
  append_big_endian(content, height, 4);
  append(content, {depth, colour_type, 0, 0, interlace});
  return chunk("IHDR", content);
}

inline Bytes deflated(const Bytes& bytes) {
  uLongf size = compressBound(bytes.size());
  Bytes out(size);
  if (compress2(out.data(), &size, bytes.data(), bytes.size(), 9) != Z_OK) {
    throw std::runtime_error("compress2");
  }
  out.resize(size);
  return out;
}

/// Makes a PNG file of a header chunk, others, the rows with their filter bytes.
inline Bytes png_file(const Bytes& header, const Bytes& others, const Bytes& rows) {
  Bytes bytes{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  for (const Bytes& part : {header, others, chunk("IDAT", deflated(rows)), chunk("IEND", {})}) {
    append(bytes, part);
  }
  return bytes;
}

/// Makes the frame segment of a JPEG file with this marker and these samples' bits.
inline Bytes jpeg_frame(
    std::uint8_t marker,
    std::uint32_t width,
    std::uint32_t height,
    std::uint8_t bits = 8,
    std::uint8_t components = 3) {
  Bytes content{bits};
  append_big_endian(content, height, 2);
  append_big_endian(content, width, 2);
  content.push_back(components);
  for (std::uint8_t i = 1; i <= components; ++i) append(content, {i, 0x11, 0});
  return segment(marker, content);
}

/// Finds the first segment of a JPEG file with this marker.
inline std::size_t find_segment(const Bytes& jpeg, std::uint8_t marker) {
  std::size_t at = 2;
  while (jpeg.at(at + 1) != marker) {
    at += 2 + static_cast<std::size_t>(jpeg.at(at + 2) << 8 | jpeg.at(at + 3));
  }
  return at;
}

/// Makes EXIF data with nothing but an orientation.
inline Bytes exif(std::uint8_t orientation, bool is_little = true) {
  if (is_little) {
    return {'I', 'I', 42, 0, 8, 0,           0, 0, 1, 0, 0x12, 1, 3,
            0,   1,   0,  0, 0, orientation, 0, 0, 0, 0, 0,    0, 0};
  }
  return {'M', 'M', 0, 42, 0, 0, 0,           8, 0, 1, 1, 0x12, 0,
          3,   0,   0, 0,  1, 0, orientation, 0, 0, 0, 0, 0,    0};
}

inline Bytes exif_segment_content(const Bytes& tiff) {
  Bytes content{'E', 'x', 'i', 'f', 0, 0};
  append(content, tiff);
  return content;
}

inline Bytes file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Gives the message of the DataError that a body throws.
template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace lockstep::testing
