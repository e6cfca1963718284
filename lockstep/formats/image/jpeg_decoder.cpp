#include <algorithm>
#include <jerror.h>
#include <vector>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/jpeg.h"
#include "lockstep/formats/image/jpeg_errors.h"

namespace lockstep {
namespace {

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

void start(Decompressor& decompressor, const JpegHeader& header) {
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

}  // namespace

void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name,
    const JpegHeader& header, int scan_limit, const Box& box, Image& out) {
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

}  // namespace lockstep
