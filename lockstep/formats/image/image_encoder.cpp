#include "lockstep/formats/image/image_encoder.h"

#include <array>
#include <cstdlib>
#include <png.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/jpeg_errors.h"

namespace lockstep {
namespace {

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

std::vector<std::uint8_t> encode_png(const ImageView& image) {
  constexpr std::array<png_uint_32, 4> kFormats{
      PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  check(1 <= image.channels && image.channels <= 4,
      "encode_png: the image must have 1 to 4 channels: ", image.channels);
  check_holds_its_pixels(image);
  png_image file{};
  file.version = PNG_IMAGE_VERSION;
  file.width = static_cast<png_uint_32>(image.size.width);
  file.height = static_cast<png_uint_32>(image.size.height);
  file.format = kFormats[static_cast<std::size_t>(image.channels - 1)];
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(file);
  std::vector<std::uint8_t> bytes(size);
  const int done =
      png_image_write_to_memory(&file, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  check(done != 0, "encode_png: ", file.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace lockstep
