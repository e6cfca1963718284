#include "lockstep/formats/image/image_reader.h"

#include <utility>

#include "lockstep/formats/image/jpeg.h"
#include "lockstep/formats/image/png.h"

namespace lockstep {
namespace {

ImageInfo read_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  if (image_kind(bytes, name) == ImageKind::kJpeg) return read_jpeg_header(bytes, name, limits);
  return read_png_header(bytes, name, limits);
}

}  // namespace

ImageReader::ImageReader(
    std::span<const std::uint8_t> bytes, std::string name, const ImageOptions& options)
    : bytes_(bytes),
      name_(std::move(name)),
      options_(options),
      info_(read_header(bytes_, name_, options.limits)) {}

Image ImageReader::read() const { return read({0, 0, size().width, size().height}); }

Image ImageReader::read(const Box& box) const {
  Image image;
  read(box, image);
  return image;
}

void ImageReader::read(const Box& box, Image& out) const {
  check_inside(box, size());
  const Box stored = stored_box(box, info_.size, orientation());
  out.resize({stored.width, stored.height}, 3);
  if (info_.kind == ImageKind::kJpeg) {
    decode_jpeg(bytes_, name_, info_, options_.limits.scans, stored, out);
  } else {
    decode_png(bytes_, name_, info_, stored, out);
  }
  if (orientation() != 1) out = turned(out.view(), orientation());
}

Image decode_image(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageOptions& options) {
  return ImageReader(bytes, name, options).read();
}

}  // namespace lockstep
