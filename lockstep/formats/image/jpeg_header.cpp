#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/jpeg.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

// Codes of ITU T.81, table B.1; each follows a byte 0xff.
constexpr int kStartOfImage = 0xd8;
constexpr int kEndOfImage = 0xd9;
constexpr int kStartOfScan = 0xda;
constexpr int kBaseline = 0xc0;
constexpr int kExtended = 0xc1;
constexpr int kProgressive = 0xc2;
constexpr int kApplication1 = 0xe1;
constexpr std::string_view kExif = "Exif\0\0"sv;
constexpr std::size_t kFixedFrameBytes = 8;
constexpr std::size_t kComponentBytes = 3;

bool is_frame(int marker) {
  return 0xc0 <= marker && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/// Returns whether no length follows a marker: TEM and the restart markers.
bool stands_alone(int marker) { return marker == 0x01 || (0xd0 <= marker && marker <= 0xd7); }

std::string_view coding(int marker) {
  if (marker == 0xc3) return "lossless coding";
  if (marker == 0xc9 || marker == 0xca) return "arithmetic coding";
  return "lossless, hierarchical or arithmetic coding";
}

class HeaderParser {
 public:
  HeaderParser(
      std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits)
      : bytes_(bytes), name_(name), limits_(limits) {}

  JpegHeader parse() {
    if (byte() != 0xff || byte() != kStartOfImage) {
      marker_offset_ = 0;
      fail("no JPEG image: it does not begin with the marker of one");
    }
    while (true) {
      const int marker = next_marker();
      if (marker == kStartOfScan) break;
      if (marker == kStartOfImage || marker == kEndOfImage) {
        fail("the JPEG image ends or begins again before its first scan");
      }
      if (!stands_alone(marker)) take_segment(marker, next_segment());
    }
    if (!has_frame_) fail("the first scan comes before the frame that describes it");
    header_.first_scan = marker_offset_;
    check_enough_bytes();
    return header_;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... reason) const {
    refuse_at(name_, marker_offset_, reason...);
  }

  int byte() {
    if (at_ >= bytes_.size()) {
      marker_offset_ = at_;
      fail("the file ends inside its JPEG header");
    }
    return bytes_[at_++];
  }

  // Passes over what is between segments, as libjpeg does: fill bytes, and stray ones that some
  // writers leave.
  int next_marker() {
    int code = 0;
    while (code == 0) {
      while (byte() != 0xff) {
      }
      marker_offset_ = at_ - 1;
      do {
        code = byte();
      } while (code == 0xff);
    }
    return code;
  }

  std::span<const std::uint8_t> next_segment() {
    const int high = byte();
    const int length = high << 8 | byte();
    if (length < 2) fail("the JPEG segment has a length of ", length, ", less than 2");
    const std::size_t content = static_cast<std::size_t>(length) - 2;
    if (content > bytes_.size() - at_) {
      fail("the file ends inside a JPEG segment of ", length, " bytes");
    }
    at_ += content;
    return bytes_.subspan(at_ - content, content);
  }

  void take_segment(int marker, std::span<const std::uint8_t> content) {
    if (is_frame(marker)) {
      take_frame(marker, content);
    } else if (marker == kApplication1 && !has_exif_) {
      take_exif(content);
    }
  }

  void take_exif(std::span<const std::uint8_t> content) {
    if (!starts_with(content, kExif)) return;
    has_exif_ = true;
    header_.exif = exif_orientation(content.subspan(kExif.size()));
  }

  void take_frame(int marker, std::span<const std::uint8_t> frame) {
    if (has_frame_) fail("the JPEG image has two frames");
    if (marker != kBaseline && marker != kExtended && marker != kProgressive) {
      fail("JPEG with ", coding(marker), " is not read; convert the file");
    }
    if (frame.size() < kFixedFrameBytes - 2) fail("the JPEG frame is too short");
    if (frame[0] != 8) fail("JPEG with ", int{frame[0]}, " bits a sample is not read, only 8");
    header_.size = {frame[3] << 8 | frame[4], frame[1] << 8 | frame[2]};
    header_.channels = frame[5];
    header_.progressive = marker == kProgressive;
    take_components(frame.subspan(kFixedFrameBytes - 2));
    check_limits(header_.size, limits_, name_, marker_offset_);
    has_frame_ = true;
  }

  void take_components(std::span<const std::uint8_t> components) {
    const int count = header_.channels;
    if (count != 1 && count != 3 && count != 4) {
      fail("JPEG with ", count, " components is not read, only 1, 3 or 4");
    }
    if (components.size() != kComponentBytes * static_cast<std::size_t>(count)) {
      fail("the JPEG frame does not have the length of its ", count, " components");
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const int sampling = components[i * kComponentBytes + 1];
      sampling_[i] = {sampling >> 4, sampling & 15};
      if (std::min(sampling >> 4, sampling & 15) < 1 ||
          std::max(sampling >> 4, sampling & 15) > 4) {
        fail("a JPEG sampling factor is not 1 to 4");
      }
    }
  }

  /// Counts the blocks of 8 x 8 samples of the component that has most.
  std::int64_t most_blocks() const {
    const auto divided = [](std::int64_t size, std::int64_t by) { return (size + by - 1) / by; };
    std::int64_t horizontal = 1;
    std::int64_t vertical = 1;
    for (const auto& [h, v] : sampling_) {
      horizontal = std::max<std::int64_t>(horizontal, h);
      vertical = std::max<std::int64_t>(vertical, v);
    }
    std::int64_t most = 0;
    for (const auto& [h, v] : sampling_) {
      const std::int64_t columns = divided(header_.size.width * h, 8 * horizontal);
      most = std::max(most, columns * divided(header_.size.height * v, 8 * vertical));
    }
    return most;
  }

  void check_enough_bytes() const {
    const auto rest = static_cast<std::int64_t>(bytes_.size() - at_);
    if (most_blocks() <= 8 * rest) return;
    fail("the file ends too early: ", rest, " bytes cannot hold an image of ", header_.size.width,
        " x ", header_.size.height, " pixels");
  }

  struct Sampling {
    std::int64_t horizontal = 0;
    std::int64_t vertical = 0;
  };

  std::span<const std::uint8_t> bytes_;
  const std::string& name_;
  const ImageLimits& limits_;
  std::size_t at_ = 0;
  std::size_t marker_offset_ = 0;
  bool has_frame_ = false;
  bool has_exif_ = false;
  std::array<Sampling, 4> sampling_{};
  JpegHeader header_;
};

}  // namespace

JpegHeader read_jpeg_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  return HeaderParser(bytes, name, limits).parse();
}

}  // namespace lockstep
