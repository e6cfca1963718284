#include "lockstep/formats/image/image_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

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
  const auto seen = bytes.first(std::min<std::size_t>(bytes.size(), 256));
  std::string front(seen.begin(), seen.end());
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

}  // namespace

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

}  // namespace lockstep
