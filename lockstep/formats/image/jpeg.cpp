#include "lockstep/formats/image/jpeg.h"

// jpeglib.h needs FILE and size_t, and does not say so.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <jerror.h>
#include <jpeglib.h>
#include <new>
#include <string_view>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/error_jump.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

/// libjpeg's errors as they leave it; see Note [Errors of C libraries].
class JpegErrors {
 public:
  JpegErrors() {
    jpeg_std_error(&base_);
    base_.error_exit = leave;
  }

  jpeg_error_mgr* base() { return &base_; }

  /// Runs calls of libjpeg; returns false if one of them failed, with the reason in text(). No
  /// memory is a std::bad_alloc.
  template <typename Body>
  [[nodiscard]] bool run(const Body& body) {
    if (jump_.run(body)) return true;
    if (out_of_memory_) throw std::bad_alloc();
    return false;
  }

  const char* text() const { return jump_.text.data(); }

  /// Ends the body that runs, with libjpeg's message.
  [[noreturn]] static void leave(j_common_ptr info) {
    ErrorJump& jump = jump_of(info);
    static_assert(std::tuple_size_v<ErrorJump::Text> >= JMSG_LENGTH_MAX);
    info->err->format_message(info, jump.text.data());
    reinterpret_cast<JpegErrors*>(info->err)->out_of_memory_ =
        info->err->msg_code == JERR_OUT_OF_MEMORY;
    jump.leave();
  }

  static ErrorJump& jump_of(j_common_ptr info) {
    return reinterpret_cast<JpegErrors*>(info->err)->jump_;
  }

 private:
  jpeg_error_mgr base_{};  // first: libjpeg knows only this
  ErrorJump jump_;
  bool out_of_memory_ = false;
};

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

  ImageInfo parse() {
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
  ImageInfo header_;
};

// Fancy upsampling mixes a sample of colour with its neighbours; at the edge of what is decoded
// they are missing. So more columns are decoded than asked for: one sample covers at most 4 pixels.
constexpr std::int64_t kMarginPixels = 8;
constexpr std::size_t kChannels = 3;

struct ProgressManager {
  jpeg_progress_mgr base;
  int scan_limit;
  std::size_t most_stray_bytes;
};

// After these warnings nothing of the image is missing: stray bytes before a marker, which decoders
// pass over unless they are a large part of the file, and headers of makers who number them
// differently.
bool is_harmless(j_common_ptr info) {
  const auto& error = *info->err;
  if (error.msg_code == JWRN_EXTRANEOUS_DATA)
    return static_cast<std::size_t>(error.msg_parm.i[0]) <=
           reinterpret_cast<const ProgressManager*>(info->progress)->most_stray_bytes;
  return error.msg_code == JWRN_JFIF_MAJOR || error.msg_code == JWRN_ADOBE_XFORM;
}

void take_warnings_as_errors(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info)) JpegErrors::leave(info);
}

void limit_scans(j_common_ptr info) {
  const auto* progress = reinterpret_cast<const ProgressManager*>(info->progress);
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= progress->scan_limit) return;
  auto& jump = JpegErrors::jump_of(info);
  std::snprintf(jump.text.data(), jump.text.size(), "more than %d scans", progress->scan_limit);
  jump.leave();
}

/// libjpeg's state for one file.
class Decompressor {
 public:
  Decompressor(std::span<const std::uint8_t> bytes, const std::string& name, int scan_limit)
      : size_(bytes.size()), name_(name) {
    info_.err = errors_.base();
    info_.err->emit_message = take_warnings_as_errors;
    progress_.base.progress_monitor = limit_scans;
    progress_.scan_limit = scan_limit;
    progress_.most_stray_bytes = bytes.size() / 8;
    run([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_.base;
      jpeg_mem_src(&info_, bytes.data(), bytes.size());
    });
  }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor() { jpeg_destroy_decompress(&info_); }

  jpeg_decompress_struct& info() { return info_; }

  /// Runs calls of libjpeg; see Note [Errors of C libraries].
  template <typename Body>
  void run(const Body& body) {
    if (!errors_.run(body)) fail(errors_.text());
  }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... reason) const {
    const std::size_t left = info_.src == nullptr ? size_ : info_.src->bytes_in_buffer;
    refuse_at(
        name_, size_ - std::min(left, size_), "the JPEG image is damaged or cut: ", reason...);
  }

 private:
  std::size_t size_;
  const std::string& name_;
  JpegErrors errors_;
  ProgressManager progress_{};
  jpeg_decompress_struct info_{};
};

/// Refuses a file without its end marker, which a part of the image would not come to. Between the
/// first scan and the end no other 0xff is followed by this code.
void check_has_end(
    std::span<const std::uint8_t> bytes, std::size_t first_scan, const std::string& name) {
  for (std::size_t at = bytes.size() - 1; at > first_scan; --at) {
    if (bytes[at] == 0xd9 && bytes[at - 1] == 0xff) return;
  }
  refuse_at(name, bytes.size(), "the file ends before its JPEG image does: it was cut");
}

void start(Decompressor& decompressor, const ImageInfo& header) {
  auto& info = decompressor.info();
  decompressor.run([&] {
    jpeg_read_header(&info, TRUE);
    info.out_color_space = header.channels == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info);
  });
  if (info.output_width != header.size.width || info.output_height != header.size.height) {
    decompressor.fail("its size changes");
  }
  for (int i = 0; i < info.num_components; ++i) {
    // Latched when the component's first scan begins.
    if (info.comp_info[i].quant_table == nullptr) decompressor.fail("component ", i, " is missing");
  }
}

/// Returns whether libjpeg fills in what the scans left out: from neighbours further away than the
/// margin.
bool is_smoothed(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode || info.coef_bits == nullptr) return false;
  return std::any_of(info.coef_bits, info.coef_bits + info.num_components, [](const auto& bits) {
    return std::any_of(bits, bits + DCTSIZE2, [](int missing) { return missing != 0; });
  });
}

/// Asks libjpeg for some columns and returns the first that it will give.
std::int64_t crop_columns(Decompressor& decompressor, const Box& box) {
  auto& info = decompressor.info();
  const std::int64_t end =
      std::min<std::int64_t>(info.output_width, box.left + box.width + kMarginPixels);
  auto left = static_cast<JDIMENSION>(std::max<std::int64_t>(0, box.left - kMarginPixels));
  auto width = static_cast<JDIMENSION>(end) - left;
  if (width < info.output_width) {
    decompressor.run([&] { jpeg_crop_scanline(&info, &left, &width); });
  }
  return left;
}

/// Leaves out the rows above the box; libjpeg can do that without computing them, unless it
/// smooths.
void skip_rows(Decompressor& decompressor, std::int64_t rows, bool can_skip) {
  auto& info = decompressor.info();
  if (can_skip && rows > 0) {
    decompressor.run([&] { jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(rows)); });
  }
  std::vector<std::uint8_t> row(
      info.output_width * static_cast<std::size_t>(info.output_components));
  JSAMPROW into = row.data();
  while (info.output_scanline < rows) {
    decompressor.run([&] { jpeg_read_scanlines(&info, &into, 1); });
  }
}

/// Multiplies two numbers that stand for 0 to 1 in 255 steps, rounded.
int multiplied(int a, int b) {
  const int product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/// Mixes inverted CMYK (255 is no ink) on black as Pillow does.
void cmyk_to_rgb(const std::uint8_t* from, std::int64_t pixels, std::uint8_t* to) {
  for (std::int64_t i = 0; i < pixels; ++i, from += 4, to += kChannels) {
    const int light = from[3];
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      to[channel] = static_cast<std::uint8_t>(light - multiplied(255 - from[channel], light));
    }
  }
}

void read_rows(Decompressor& decompressor, const Box& box, std::int64_t first_column, Image& out) {
  auto& info = decompressor.info();
  const std::int64_t components = info.output_components;
  std::vector<std::uint8_t> row(static_cast<std::size_t>(info.output_width * components));
  const std::uint8_t* wanted = row.data() + (box.left - first_column) * components;
  const bool is_cmyk = components == 4;
  const bool is_whole = !is_cmyk && box.width == info.output_width;
  for (std::int64_t y = 0; y < box.height; ++y) {
    std::uint8_t* to = out.row(y);
    JSAMPROW into = is_whole ? to : row.data();
    decompressor.run([&] { jpeg_read_scanlines(&info, &into, 1); });
    if (is_cmyk) {
      cmyk_to_rgb(wanted, box.width, to);
    } else if (!is_whole) {
      std::copy_n(wanted, box.width * components, to);
    }
  }
}

/// libjpeg's state for one file, and the file.
class Compressor {
 public:
  Compressor() {
    info_.err = errors_.base();
    run([&] {
      jpeg_create_compress(&info_);
      jpeg_mem_dest(&info_, &bytes_, &size_);
    });
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ~Compressor() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }

  jpeg_compress_struct& info() { return info_; }
  std::vector<std::uint8_t> file() const { return {bytes_, bytes_ + size_}; }

  /// Runs calls of libjpeg; see Note [Errors of C libraries].
  template <typename Body>
  void run(const Body& body) {
    if (!errors_.run(body)) throw InvalidArgument(concat("encode_jpeg: ", errors_.text()));
  }

 private:
  JpegErrors errors_;
  jpeg_compress_struct info_{};
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;
};

void check_options(const ImageView& image, const JpegOptions& options) {
  check(image.channels == 1 || image.channels == 3,
      "encode_jpeg: the image must have 1 or 3 channels: ", image.channels);
  check(1 <= options.quality && options.quality <= 100,
      "encode_jpeg: the quality must be 1 to 100: ", options.quality);
  const int horizontal = options.horizontal_subsampling;
  const int vertical = options.vertical_subsampling;
  check((horizontal == 1 || horizontal == 2 || horizontal == 4) && (vertical == 1 || vertical == 2),
      "encode_jpeg: the subsampling must be 1, 2 or 4 by 1 or 2: ", horizontal, " by ", vertical);
  check(options.restart_rows >= 0,
      "encode_jpeg: restart rows must not be negative: ", options.restart_rows);
}

void set_parameters(
    jpeg_compress_struct& info, const ImageView& image, const JpegOptions& options) {
  info.image_width = static_cast<JDIMENSION>(image.size.width);
  info.image_height = static_cast<JDIMENSION>(image.size.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (image.channels == 3) {
    info.comp_info[0].h_samp_factor = options.horizontal_subsampling;
    info.comp_info[0].v_samp_factor = options.vertical_subsampling;
  }
  info.restart_in_rows = options.restart_rows;
  if (options.progressive) jpeg_simple_progression(&info);
}

}  // namespace

ImageInfo read_jpeg_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  return HeaderParser(bytes, name, limits).parse();
}

void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name,
    const ImageInfo& header, int scan_limit, const Box& box, Image& out) {
  check_has_end(bytes, header.first_scan, name);
  Decompressor decompressor(bytes, name, scan_limit);
  start(decompressor, header);
  auto& info = decompressor.info();
  const bool can_skip = !is_smoothed(info);
  const std::int64_t first_column = can_skip ? crop_columns(decompressor, box) : 0;
  skip_rows(decompressor, box.top, can_skip);
  read_rows(decompressor, box, first_column, out);
  if (info.output_scanline == info.output_height) {
    decompressor.run([&] { jpeg_finish_decompress(&info); });
  }
}

std::vector<std::uint8_t> encode_jpeg(const ImageView& image, const JpegOptions& options) {
  check_options(image, options);
  check_holds_its_pixels(image);
  Compressor compressor;
  auto& info = compressor.info();
  compressor.run([&] {
    set_parameters(info, image, options);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      auto* row = const_cast<JSAMPROW>(image.row(info.next_scanline));
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  return compressor.file();
}

}  // namespace lockstep
