#include "lockstep/formats/image/image.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  std::string_view kind;
};

constexpr std::string_view kJpeg = "\xff\xd8\xff"sv;
constexpr std::string_view kPng = "\x89PNG\r\n\x1a\n"sv;

// What people find in folders of images, from the lists of file(1) and WHATWG's MIME Sniffing.
constexpr std::array kOthers{
    Signature{0, "GIF87a"sv, "a GIF image"sv},
    Signature{0, "GIF89a"sv, "a GIF image"sv},
    Signature{8, "WEBP"sv, "a WebP image"sv},
    Signature{4, "ftypavif"sv, "an AVIF image"sv},
    Signature{4, "ftypheic"sv, "a HEIC image"sv},
    Signature{4, "ftypmif1"sv, "a HEIF image"sv},
    Signature{0, "II*\0"sv, "a TIFF image"sv},
    Signature{0, "MM\0*"sv, "a TIFF image"sv},
    Signature{0, "\0\0\0\x0cjP  "sv, "a JPEG 2000 image"sv},
    Signature{0, "\xff\x0a"sv, "a JPEG XL image"sv},
    Signature{0, "\0\0\0\x0cJXL "sv, "a JPEG XL image"sv},
    Signature{0, "\x8bMNG"sv, "an MNG animation"sv},
    Signature{0, "BM"sv, "a BMP image"sv},
    Signature{0, "\x1f\x8b"sv, "gzip"sv},
    Signature{0, "PK\x03\x04"sv, "a zip archive"sv},
    Signature{0, "%PDF-"sv, "a PDF document"sv},
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

char lower(char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Names text by its first 256 bytes, none of which is a control character.
std::optional<std::string_view> kind_of_text(std::span<const std::uint8_t> bytes) {
  std::string front(text_of(bytes).substr(0, 256));
  const bool is_text = std::none_of(front.begin(), front.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 && !is_blank(c); });
  if (!is_text) return std::nullopt;
  front.erase(front.begin(), std::find_if_not(front.begin(), front.end(), is_blank));
  std::transform(front.begin(), front.end(), front.begin(), lower);
  if (front.starts_with("<!doctype html") || front.starts_with("<html")) return "an HTML page";
  if (front.starts_with("<svg") || front.starts_with("<?xml")) return "XML or an SVG image";
  return "text";
}

std::span<const std::uint8_t> after(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return bytes.subspan(std::min(offset, bytes.size()));
}

std::string_view kind_of_other(std::span<const std::uint8_t> bytes) {
  for (const auto& other : kOthers) {
    if (starts_with(after(bytes, other.offset), other.bytes)) return other.kind;
  }
  return kind_of_text(bytes).value_or("of an unknown kind");
}

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
    const auto bytes = bytes_.subspan(offset, width);
    return static_cast<std::uint32_t>(is_little_ ? little_endian(bytes) : big_endian(bytes));
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

Image Image::of_size(ImageSize size, std::int64_t channels) {
  check(size.width > 0 && size.height > 0 && channels > 0, "Image: must have pixels: ", size.width,
      " x ", size.height, " x ", channels);
  Image image;
  image.resize(size, channels);
  return image;
}

void Image::resize(ImageSize to, std::int64_t to_channels) {
  size = to;
  channels = to_channels;
  pixels.resize(static_cast<std::size_t>(size.width * size.height * channels));
}

void check_inside(const Box& box, ImageSize size) {
  const bool has_pixels = box.width > 0 && box.height > 0;
  const bool is_inside = box.left >= 0 && box.top >= 0 && box.width <= size.width - box.left &&
                         box.height <= size.height - box.top;
  check(has_pixels && is_inside, "crop: the box is empty or leaves the image of ", size.width,
      " x ", size.height, ": ", box.width, " x ", box.height, " at ", box.left, ", ", box.top);
}

void check_holds_its_pixels(const ImageView& image) {
  const auto [width, height] = image.size;
  check(width > 0 && height > 0 && image.channels > 0 &&
            image.pixels.size() == static_cast<std::size_t>(width * height * image.channels),
      "Image: the bytes must be those of ", width, " x ", height, " x ", image.channels, ": ",
      image.pixels.size());
}

Image crop(const ImageView& image, const Box& box) {
  Image part;
  crop(image, box, part);
  return part;
}

void crop(const ImageView& image, const Box& box, Image& out) {
  check_inside(box, image.size);
  out.resize({box.width, box.height}, image.channels);
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t* from = image.row(box.top + y) + box.left * image.channels;
    std::copy_n(from, box.width * image.channels, out.row(y));
  }
}

ImageKind image_kind(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (starts_with(bytes, kJpeg)) return ImageKind::kJpeg;
  if (starts_with(bytes, kPng)) return ImageKind::kPng;
  if (bytes.empty()) refuse_at(name, 0, "the file is empty");
  refuse_at(name, 0, "not a JPEG or PNG image: the file is ", kind_of_other(bytes),
      "; convert or remove it");
}

void check_limits(
    ImageSize size, const ImageLimits& limits, const std::string& name, std::uint64_t offset) {
  const auto refuse = [&](const auto&... reason) {
    refuse_at(name, offset, "the image of ", size.width, " x ", size.height, " pixels ", reason...);
  };
  if (size.width <= 0 || size.height <= 0) refuse("is empty");
  if (size.width > limits.side || size.height > limits.side) {
    refuse("has a side above the limit of ", limits.side);
  }
  if (size.width > limits.pixels / size.height) {
    refuse("has more pixels than the limit of ", limits.pixels);
  }
}

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
