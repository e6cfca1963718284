#include "lockstep/formats/idx.h"

#include <algorithm>
#include <array>

#include "lockstep/core/error.h"
#include "lockstep/formats/gzip.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

// An IDX file: 00 00, the type of its values (08 = unsigned byte), the number of dimensions, one
// big-endian 32-bit count for each dimension, the values.
constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kCountBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::size_t kFirstPiece = 64 * 1024;

template <typename... Parts>
[[noreturn]] void fail(const ByteSource& source, std::size_t offset, const Parts&... reason) {
  throw DataError(concat(source.name(), ": offset ", offset, ": ", reason...));
}

void check_magic(
    const ByteSource& source, std::span<const std::uint8_t> magic, int expected_dimensions) {
  if (magic[0] != 0) fail(source, 0, "no IDX file: the first byte is ", int{magic[0]}, ", not 0");
  if (magic[1] != 0) fail(source, 1, "no IDX file: the second byte is ", int{magic[1]}, ", not 0");
  if (magic[2] != kUnsignedByte) {
    fail(
        source, 2, "the type of the values is ", int{magic[2]},
        ", only 8 (unsigned bytes) is read");
  }
  if (magic[3] != expected_dimensions) {
    fail(
        source, 3, "the file has ", int{magic[3]}, " dimensions, ", expected_dimensions,
        " are needed");
  }
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint32_t number = 0;
  for (const std::uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

std::vector<std::uint32_t> read_shape(ByteSource& source, int expected_dimensions) {
  std::array<std::uint8_t, kMagicBytes + kCountBytes * 255> header{};
  const std::size_t size =
      kMagicBytes + kCountBytes * static_cast<std::size_t>(expected_dimensions);
  const std::size_t seen = source.read(std::span(header).first(size));
  if (seen == 0) fail(source, 0, "the file is empty");
  if (seen >= kMagicBytes) check_magic(source, header, expected_dimensions);
  if (seen < size) fail(source, seen, "the file ends inside its header of ", size, " bytes");
  std::vector<std::uint32_t> shape;
  for (std::size_t at = kMagicBytes; at < size; at += kCountBytes) {
    shape.push_back(big_endian(std::span(header).subspan(at, kCountBytes)));
  }
  return shape;
}

std::uint64_t promised_bytes(
    const ByteSource& source, const std::vector<std::uint32_t>& shape,
    std::uint64_t maximum_bytes) {
  std::uint64_t bytes = 1;
  std::size_t offset = kMagicBytes;
  for (const std::uint32_t count : shape) {
    if (count == 0) fail(source, offset, "a dimension counts 0");
    if (count > maximum_bytes / bytes) {
      fail(source, offset, "the counts promise more than the limit of ", maximum_bytes, " bytes");
    }
    bytes *= count;
    offset += kCountBytes;
  }
  return bytes;
}

std::vector<std::uint8_t> read_values(
    ByteSource& source, std::size_t promised, std::size_t header_bytes) {
  std::vector<std::uint8_t> values;
  while (values.size() < promised) {
    const std::size_t before = values.size();
    values.resize(std::min(promised, std::max(kFirstPiece, 2 * before)));
    const std::size_t seen = before + source.read(std::span(values).subspan(before));
    if (seen < values.size()) {
      fail(
          source, header_bytes + seen, "the file ends after ", seen, " of the ", promised,
          " values that its header promises");
    }
  }
  std::array<std::uint8_t, 1> beyond{};
  if (source.read(beyond) != 0) {
    fail(
        source, header_bytes + promised, "the file goes on after the ", promised,
        " values that its header promises");
  }
  return values;
}

}  // namespace

IdxArray parse_idx(ByteSource& source, int expected_dimensions, std::uint64_t maximum_bytes) {
  check(
      1 <= expected_dimensions && expected_dimensions <= 255,
      "parse_idx: dimensions must be 1 to 255: ", expected_dimensions);
  IdxArray array{.shape = read_shape(source, expected_dimensions), .values = {}};
  const std::uint64_t promised = promised_bytes(source, array.shape, maximum_bytes);
  array.values = read_values(source, promised, kMagicBytes + kCountBytes * array.shape.size());
  return array;
}

IdxArray read_idx(
    const std::filesystem::path& path, int expected_dimensions, std::uint64_t maximum_bytes) {
  InputFile file(path);
  GunzipSource source(file);
  return parse_idx(source, expected_dimensions, maximum_bytes);
}

}  // namespace lockstep
