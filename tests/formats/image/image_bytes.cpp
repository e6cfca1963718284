#include "tests/formats/image/image_bytes.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <zlib.h>

namespace lockstep::testing {
namespace {

constexpr std::size_t kAfterHeaderChunk = 33;

void append_big_endian(Bytes& bytes, std::uint32_t number, int width) {
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
  }
}

}  // namespace

Image picture(ImageSize size, std::int64_t channels) {
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

Bytes jpeg(ImageSize size, const JpegOptions& options) {
  return encode_jpeg(picture(size).view(), options);
}

Bytes png(ImageSize size, std::int64_t channels) {
  return encode_png(picture(size, channels).view());
}

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

void append(Bytes& bytes, const Bytes& more) {
  std::copy(more.begin(), more.end(), std::back_inserter(bytes));
}

Bytes inserted(Bytes bytes, std::size_t at, const Bytes& more) {
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return bytes;
}

Bytes deflated(const Bytes& bytes) {
  uLongf size = compressBound(bytes.size());
  Bytes out(size);
  if (compress2(out.data(), &size, bytes.data(), bytes.size(), 9) != Z_OK) {
    throw std::runtime_error("compress2");
  }
  out.resize(size);
  return out;
}

Bytes segment(int marker, const Bytes& content) {
  Bytes bytes{0xff, static_cast<std::uint8_t>(marker)};
  append_big_endian(bytes, static_cast<std::uint32_t>(content.size() + 2), 2);
  append(bytes, content);
  return bytes;
}

Bytes jpeg_frame(int marker, std::uint32_t width, std::uint32_t height, int bits, int components) {
  Bytes content{static_cast<std::uint8_t>(bits)};
  append_big_endian(content, height, 2);
  append_big_endian(content, width, 2);
  content.push_back(static_cast<std::uint8_t>(components));
  for (int i = 1; i <= components; ++i) append(content, {static_cast<std::uint8_t>(i), 0x11, 0});
  return segment(marker, content);
}

std::size_t find_segment(const Bytes& jpeg, int marker) {
  std::size_t at = 2;
  while (jpeg.at(at + 1) != marker) {
    at += 2 + static_cast<std::size_t>(jpeg.at(at + 2) << 8 | jpeg.at(at + 3));
  }
  return at;
}

Bytes with_segment(const Bytes& jpeg, int marker, const Bytes& content) {
  return inserted(jpeg, 2, segment(marker, content));
}

Bytes chunk(const std::string& type, const Bytes& content) {
  Bytes bytes;
  append_big_endian(bytes, static_cast<std::uint32_t>(content.size()), 4);
  append(bytes, bytes_of(type));
  append(bytes, content);
  const auto checksum = crc32_z(0, bytes.data() + 4, bytes.size() - 4);
  append_big_endian(bytes, static_cast<std::uint32_t>(checksum), 4);
  return bytes;
}

Bytes png_header(
    std::uint32_t width, std::uint32_t height, int depth, int colour_type, int interlace) {
  Bytes content;
  append_big_endian(content, width, 4);
  append_big_endian(content, height, 4);
  for (const int value : {depth, colour_type, 0, 0, interlace}) {
    content.push_back(static_cast<std::uint8_t>(value));
  }
  return chunk("IHDR", content);
}

Bytes png_file(const Bytes& header, const Bytes& others, const Bytes& rows) {
  return png_of_chunks({header, others, chunk("IDAT", deflated(rows)), chunk("IEND", {})});
}

Bytes png_of_chunks(const std::vector<Bytes>& chunks) {
  Bytes bytes{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  for (const Bytes& part : chunks) append(bytes, part);
  return bytes;
}

Bytes with_chunk(const Bytes& png, const std::string& type, const Bytes& content) {
  return inserted(png, kAfterHeaderChunk, chunk(type, content));
}

Bytes with_true_checksums(Bytes bytes) {
  std::size_t at = 8;
  while (at + 12 <= bytes.size()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
    if (length > bytes.size() - at - 12) break;
    const auto checksum = crc32_z(0, bytes.data() + at + 4, length + 4);
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[at + 8 + length + i] = static_cast<std::uint8_t>(checksum >> (24 - 8 * i));
    }
    at += 12 + length;
  }
  return bytes;
}

Bytes exif(int orientation, bool is_little) {
  const auto value = static_cast<std::uint8_t>(orientation);
  Bytes bytes = is_little
                    ? Bytes{'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, value, 0}
                    : Bytes{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, value};
  append(bytes, Bytes(6, 0));  // the rest of the value, no other directory
  return bytes;
}

Bytes exif_segment_content(const Bytes& tiff) {
  Bytes content{'E', 'x', 'i', 'f', 0, 0};
  append(content, tiff);
  return content;
}

}  // namespace lockstep::testing
