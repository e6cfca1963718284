#include "lockstep/formats/idx.h"

#include <algorithm>
#include <array>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

// An IDX file: 00 00, the type of its values (08 = unsigned byte), the number of dimensions, one
// big-endian 32-bit count for each dimension, the values.
constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kCountBytes = 4;
constexpr std::uint8_t kUnsignedByte = 0x08;

void check_magic(
    const ByteSource& source, std::span<const std::uint8_t> magic, int expected_dimensions) {
  if (magic[0] != 0)
    refuse_at(source.name(), 0, "no IDX file: the first byte is ", int{magic[0]}, ", not 0");
  if (magic[1] != 0)
    refuse_at(source.name(), 1, "no IDX file: the second byte is ", int{magic[1]}, ", not 0");
  if (magic[2] != kUnsignedByte) {
    refuse_at(source.name(), 2, "the type of the values is ", int{magic[2]},
        ", only 8 (unsigned bytes) is read");
  }
  if (magic[3] != expected_dimensions) {
    refuse_at(source.name(), 3, "the file has ", int{magic[3]}, " dimensions, ",
        expected_dimensions, " are needed");
  }
}

std::vector<std::uint32_t> read_shape(ByteSource& source, int expected_dimensions) {
  std::array<std::uint8_t, kMagicBytes + kCountBytes * 255> header{};
  const std::size_t size =
      kMagicBytes + kCountBytes * static_cast<std::size_t>(expected_dimensions);
  const std::size_t seen = source.read(std::span(header).first(size));
  if (seen == 0) refuse_at(source.name(), 0, "the file is empty");
  if (seen >= kMagicBytes) check_magic(source, header, expected_dimensions);
  if (seen < size)
    refuse_at(source.name(), seen, "the file ends inside its header of ", size, " bytes");
  std::vector<std::uint32_t> shape;
  for (std::size_t at = kMagicBytes; at < size; at += kCountBytes) {
    const auto count = std::span<const std::uint8_t>(header).subspan(at, kCountBytes);
    shape.push_back(static_cast<std::uint32_t>(big_endian(count)));
  }
  return shape;
}

std::uint64_t promised_bytes(const ByteSource& source, const std::vector<std::uint32_t>& shape,
    std::uint64_t maximum_bytes) {
  std::uint64_t bytes = 1;
  std::size_t offset = kMagicBytes;
  for (const std::uint32_t count : shape) {
    if (count == 0) refuse_at(source.name(), offset, "a dimension counts 0");
    if (count > maximum_bytes / bytes) {
      refuse_at(source.name(), offset, "the counts promise more than the limit of ", maximum_bytes,
          " bytes");
    }
    bytes *= count;
    offset += kCountBytes;
  }
  return bytes;
}

std::vector<std::uint8_t> read_values(
    ByteSource& source, std::size_t promised, std::size_t header_bytes) {
  std::vector<std::uint8_t> values = source.read_up_to(promised);
  if (values.size() < promised) {
    refuse_at(source.name(), header_bytes + values.size(), "the file ends after ", values.size(),
        " of the ", promised, " values that its header promises");
  }
  std::array<std::uint8_t, 1> beyond{};
  if (source.read(beyond) != 0) {
    refuse_at(source.name(), header_bytes + promised, "the file continues after the ", promised,
        " values that its header promises");
  }
  return values;
}

constexpr std::size_t kLabelHeaderBytes = 8;

void check_classes(
    const std::filesystem::path& path, const std::vector<std::uint8_t>& labels, int classes) {
  const auto bad = std::find_if(
      labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  if (bad == labels.end()) return;
  const auto index = static_cast<std::size_t>(bad - labels.begin());
  refuse_at(path.string(), kLabelHeaderBytes + index, "label out of range (>= ", classes,
      ") at index ", index, ": ", int{*bad});
}

}  // namespace

IdxArray parse_idx(ByteSource& source, int expected_dimensions, std::uint64_t maximum_bytes) {
  check(1 <= expected_dimensions && expected_dimensions <= 255,
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

LabelledImages read_labelled_images(
    const std::filesystem::path& images, const std::filesystem::path& labels, int classes) {
  IdxArray pictures = read_idx(images, 3);
  IdxArray answers = read_idx(labels, 1);
  if (pictures.shape[0] != answers.shape[0]) {
    refuse_at(labels.string(), 4, "image and label counts differ: ", pictures.shape[0],
        " images in ", images.string(), ", ", answers.shape[0], " labels");
  }
  check_classes(labels, answers.values, classes);
  return {.rows = pictures.shape[1],
      .columns = pictures.shape[2],
      .pixels = std::move(pictures.values),
      .labels = std::move(answers.values)};
}

}  // namespace lockstep
