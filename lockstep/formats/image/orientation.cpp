#include "lockstep/formats/image/orientation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// The way from the stored image to the turned one: first its axes are swapped, then it is
/// mirrored.
struct Turn {
  bool swaps_axes;
  bool mirrors_columns;
  bool mirrors_rows;
};

Turn turn_of(int orientation) {
  check(1 <= orientation && orientation <= 8,
      "orientation: must be 1 to 8, as in EXIF: ", orientation);
  return {.swaps_axes = orientation >= 5,
      .mirrors_columns =
          orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7,
      .mirrors_rows = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8};
}

// TIFF 6.0: "II*\0" or "MM\0*" gives the byte order, then the offset of the first directory: a
// count and 12 bytes an entry (tag, type, count of values, the value or its offset).
constexpr std::uint32_t kMagic = 42;
constexpr std::size_t kEntryBytes = 12;
constexpr std::uint32_t kOrientationTag = 0x0112;

/// The types of whole numbers that writers give the orientation, and their bytes.
struct NumberType {
  std::uint32_t type;
  std::size_t bytes;
};
constexpr std::array kNumbers{
    NumberType{3, 2}, NumberType{4, 4}, NumberType{8, 2}, NumberType{9, 4}};  // short, long; signed

/// Numbers in the file's byte order; nothing outside of the bytes.
class TiffBytes {
 public:
  explicit TiffBytes(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), is_little_(bytes.size() >= 2 && bytes[0] == 'I' && bytes[1] == 'I') {}

  bool has_byte_order() const {
    return is_little_ || (bytes_.size() >= 2 && bytes_[0] == 'M' && bytes_[1] == 'M');
  }

  std::optional<std::uint32_t> number(std::size_t offset, std::size_t width) const {
    if (offset > bytes_.size() || bytes_.size() - offset < width) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value = value << 8 | bytes_[offset + (is_little_ ? width - 1 - i : i)];
    }
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool is_little_;
};

constexpr ExifOrientation kDamaged{.value = 1, .is_damaged = true};

ExifOrientation read_entry(const TiffBytes& tiff, std::size_t entry) {
  const auto type = tiff.number(entry + 2, 2);
  const auto count = tiff.number(entry + 4, 4);
  const auto* const known = std::find_if(
      kNumbers.begin(), kNumbers.end(), [&](const NumberType& each) { return each.type == type; });
  if (known == kNumbers.end() || count != 1U) return kDamaged;
  const auto value = tiff.number(entry + 8, known->bytes);
  if (!value) return kDamaged;
  if (*value < 1 || *value > 8) return kDamaged;
  return {.value = static_cast<int>(*value), .is_damaged = false};
}

}  // namespace

ImageSize oriented_size(ImageSize stored, int orientation) {
  if (!turn_of(orientation).swaps_axes) return stored;
  return {stored.height, stored.width};
}

Box stored_box(const Box& oriented, ImageSize stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize whole = oriented_size(stored, orientation);
  Box box = oriented;
  if (turn.mirrors_columns) box.left = whole.width - box.left - box.width;
  if (turn.mirrors_rows) box.top = whole.height - box.top - box.height;
  if (turn.swaps_axes) {
    std::swap(box.left, box.top);
    std::swap(box.width, box.height);
  }
  return box;
}

Image turned(const ImageView& stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize size = oriented_size(stored.size, orientation);
  Image image = Image::of_size(size, stored.channels);
  const auto channels = stored.channels;
  for (std::int64_t y = 0; y < size.height; ++y) {
    const std::int64_t from_y = turn.mirrors_rows ? size.height - 1 - y : y;
    std::uint8_t* out = image.row(y);
    for (std::int64_t x = 0; x < size.width; ++x, out += channels) {
      const std::int64_t from_x = turn.mirrors_columns ? size.width - 1 - x : x;
      const std::uint8_t* pixel = turn.swaps_axes ? stored.row(from_x) + from_y * channels
                                                  : stored.row(from_y) + from_x * channels;
      std::copy_n(pixel, channels, out);
    }
  }
  return image;
}

ExifOrientation exif_orientation(std::span<const std::uint8_t> bytes) {
  const TiffBytes tiff(bytes);
  if (!tiff.has_byte_order() || tiff.number(2, 2) != kMagic) return kDamaged;
  const auto directory = tiff.number(4, 4);
  const auto entries = directory ? tiff.number(*directory, 2) : std::nullopt;
  if (!entries) return kDamaged;
  for (std::size_t i = 0; i < *entries; ++i) {
    const std::size_t entry = *directory + 2 + i * kEntryBytes;
    const auto tag = tiff.number(entry, 2);
    if (!tag) return kDamaged;
    if (tag == kOrientationTag) return read_entry(tiff, entry);
  }
  return {};
}

}  // namespace lockstep
