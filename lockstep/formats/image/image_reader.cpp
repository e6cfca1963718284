#include "lockstep/formats/image/image_reader.h"

#include <utility>

namespace lockstep {
namespace {

ImageInfo info_of(const std::variant<JpegHeader, PngHeader>& any_header) {
  return std::visit(
      [&](const auto& header) {
        return ImageInfo{.kind = any_header.index() == 0 ? ImageKind::kJpeg : ImageKind::kPng,
            .size = header.size,
            .channels = header.channels,
            .orientation = header.exif.value,
            .exif_is_damaged = header.exif.is_damaged};
      },
      any_header);
}

std::variant<JpegHeader, PngHeader> read_header(
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
      header_(read_header(bytes_, name_, options.limits)),
      info_(info_of(header_)) {
  if (options.apply_orientation) info_.size = oriented_size(info_.size, info_.orientation);
}

Image ImageReader::read() const { return read({0, 0, size().width, size().height}); }

Image ImageReader::read(const Box& box) const {
  Image image;
  read(box, image);
  return image;
}

void ImageReader::read(const Box& box, Image& out) const {
  check_inside(box, size());
  const int orientation = options_.apply_orientation ? info_.orientation : 1;
  const auto stored_size = std::visit([](const auto& header) { return header.size; }, header_);
  const Box stored = stored_box(box, stored_size, orientation);
  out.resize({stored.width, stored.height}, 3);
  if (const auto* jpeg = std::get_if<JpegHeader>(&header_)) {
    decode_jpeg(bytes_, name_, *jpeg, options_.limits.scans, stored, out);
  } else {
    decode_png(bytes_, name_, std::get<PngHeader>(header_), stored, out);
  }
  if (orientation != 1) out = turned(out.view(), orientation);
}

Image decode_image(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageOptions& options) {
  return ImageReader(bytes, name, options).read();
}

}  // namespace lockstep
