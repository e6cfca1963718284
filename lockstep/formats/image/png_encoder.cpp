#include <array>
#include <limits>

#include <png.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_encoder.h"

namespace lockstep {

std::vector<std::uint8_t> encode_png(const ImageView& image) {
  constexpr std::array<png_uint_32, 4> kFormats{
      PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  check(
      1 <= image.channels && image.channels <= 4,
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
