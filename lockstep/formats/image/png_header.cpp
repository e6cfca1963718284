#include <array>
#include <limits>
#include <string_view>
#include <zlib.h>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/png.h"

namespace lockstep {
namespace {

// A PNG file: 8 bytes of signature, then chunks: the length of the content (4 bytes, big-endian),
// the type (4 letters), the content, a CRC-32 of type and content.
constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkFrameBytes = 12;
constexpr std::size_t kHeaderBytes = 13;
constexpr std::uint32_t kLongestChunk = std::numeric_limits<std::int32_t>::max();
// Deflate's best: 258 bytes for a length and a distance of 1 bit each.
constexpr std::uint64_t kBestRatio = 1032;

struct Chunk {
  std::size_t offset;
  std::string_view type;
  std::span<const std::uint8_t> content;
  std::uint32_t checksum;

  /// The bytes that the checksum covers.
  std::span<const std::uint8_t> covered() const { return {content.data() - 4, content.size() + 4}; }
};

/// Returns the four bytes at a place as a number, highest first.
std::uint32_t word_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return static_cast<std::uint32_t>(big_endian(bytes.subspan(offset, 4)));
}

bool is_letter(char c) { return ('A' <= c && c <= 'Z') || ('a' <= c && c <= 'z'); }

Chunk chunk_at(std::span<const std::uint8_t> bytes, std::size_t offset, const std::string& name) {
  const auto rest = bytes.subspan(offset);
  if (rest.size() < kChunkFrameBytes) {
    refuse_at(name, offset, "the file ends before its IEND chunk: it was cut");
  }
  const std::uint32_t length = word_at(rest, 0);
  const std::string_view type = text_of(rest.subspan(4, 4));
  for (const char c : type) {
    if (!is_letter(c))
      refuse_at(name, offset + 4, "the type of a PNG chunk is not made of letters");
  }
  if (length > kLongestChunk || length > rest.size() - kChunkFrameBytes) {
    refuse_at(name, offset, "the file ends inside a PNG chunk ", type, " of ", length, " bytes");
  }
  return {offset, type, rest.subspan(8, length), word_at(rest, 8 + length)};
}

/// Calls `take` with each chunk up to IEND.
template <typename Take>
void for_each_chunk(
    std::span<const std::uint8_t> bytes, const std::string& name, const Take& take) {
  std::size_t offset = kSignatureBytes;
  while (true) {
    const Chunk chunk = chunk_at(bytes, offset, name);
    take(chunk);
    if (chunk.type == "IEND") return;
    offset += chunk.content.size() + kChunkFrameBytes;
  }
}

int channels_of(int colour_type, const std::string& name, std::size_t offset) {
  switch (colour_type) {
    case 0:
    case 3:
      return 1;
    case 2:
      return 3;
    case 4:
      return 2;
    case 6:
      return 4;
    default:
      refuse_at(name, offset, "the colour type of the PNG image is ", colour_type,
          ", not 0, 2, 3, 4 or 6");
  }
}

bool is_depth_allowed(int depth, int colour_type) {
  if (depth == 8) return true;
  if (depth == 16) return colour_type != 3;
  return (depth == 1 || depth == 2 || depth == 4) && (colour_type == 0 || colour_type == 3);
}

PngHeader read_first_chunk(const Chunk& chunk, const std::string& name, const ImageLimits& limits) {
  if (chunk.type != "IHDR" || chunk.content.size() != kHeaderBytes) {
    refuse_at(name, chunk.offset, "the first chunk of the PNG image is not an IHDR of 13 bytes");
  }
  const auto& content = chunk.content;
  const std::size_t offset = chunk.offset + 8;
  const int colour_type = content[9];
  PngHeader header{.size = {word_at(content, 0), word_at(content, 4)},
      .channels = channels_of(colour_type, name, offset + 9),
      .bit_depth = content[8],
      .interlaced = content[12] == 1,
      .exif = {}};
  if (!is_depth_allowed(header.bit_depth, colour_type)) {
    refuse_at(name, offset + 8, "a PNG image of colour type ", colour_type, " cannot have ",
        header.bit_depth, " bits a sample");
  }
  if (content[10] != 0 || content[11] != 0 || content[12] > 1) {
    refuse_at(
        name, offset + 10, "the PNG image is compressed, filtered or interlaced in an unknown way");
  }
  check_limits(header.size, limits, name, offset);
  return header;
}

/// Refuses what deflate cannot give; the filter bytes, one a row, count as pixels do.
void check_enough_bytes(
    const PngHeader& header, std::uint64_t compressed, const std::string& name) {
  const auto bits =
      static_cast<std::uint64_t>(header.size.width * header.channels * header.bit_depth);
  const std::uint64_t needed =
      static_cast<std::uint64_t>(header.size.height) * (1 + (bits + 7) / 8);
  if (needed / kBestRatio <= compressed) return;
  refuse_at(name, kSignatureBytes, "the IDAT chunks are too short: ", compressed,
      " bytes cannot hold an image of ", header.size.width, " x ", header.size.height, " pixels");
}

}  // namespace

PngHeader read_png_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  if (bytes.size() < kSignatureBytes)
    refuse_at(name, bytes.size(), "the file ends inside its signature");
  PngHeader header = read_first_chunk(chunk_at(bytes, kSignatureBytes, name), name, limits);
  std::uint64_t compressed = 0;
  for_each_chunk(bytes, name, [&](const Chunk& chunk) {
    if (chunk.type == "IDAT") compressed += chunk.content.size();
    if (chunk.type == "eXIf") header.exif = exif_orientation(chunk.content);
  });
  check_enough_bytes(header, compressed, name);
  return header;
}

void check_png_checksums(std::span<const std::uint8_t> bytes, const std::string& name) {
  for_each_chunk(bytes, name, [&](const Chunk& chunk) {
    const auto covered = chunk.covered();
    if (crc32_z(0, covered.data(), covered.size()) == chunk.checksum) return;
    refuse_at(name, chunk.offset, "the checksum of the PNG chunk ", chunk.type,
        " is wrong: the file is damaged");
  });
}

}  // namespace lockstep
