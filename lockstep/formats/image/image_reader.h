#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep {

/// A reader of a JPEG or PNG file in memory: the pixels of the whole or a part, as RGB.
///
/// The kind is found by the content. The pixels are those of Pillow's `convert("RGB")`: alpha and
/// transparent colours are dropped, CMYK is taken as inverted (Adobe's way); 16 bits keep their
/// upper byte, also in grey, where Pillow clips. Of an animated PNG the default image is read.
///
/// What is damaged, cut or beyond the limits is a DataError that names file, offset and reason;
/// nothing is repaired. A part decodes only the rows down to its end: damage below it is found by
/// read() alone, a missing end of the file by both, and a PNG's checksums are all verified. Bytes
/// after the end of the image do not belong to it.
///
///     ImageReader reader(bytes, "cat.jpg");
///     Image face = reader.read({.left = 30, .top = 20, .width = 100, .height = 100});
class ImageReader {
 public:
  /// Reads the header; the bytes must outlive the reader.
  explicit ImageReader(
      std::span<const std::uint8_t> bytes, std::string name, const ImageOptions& options = {});

  const ImageInfo& info() const { return info_; }

  /// Returns the size of what read() gives: after the orientation, if that is applied.
  ImageSize size() const { return oriented_size(info_.size, orientation()); }

  /// Decodes the image.
  Image read() const;

  /// Decodes a part: the same bits as crop() of the whole; a box that leaves the image is an
  /// InvalidArgument. Many threads may read at once.
  Image read(const Box& box) const;

  /// Does the same into an image whose memory is used again.
  void read(const Box& box, Image& out) const;

 private:
  int orientation() const { return options_.apply_orientation ? info_.exif.value : 1; }

  std::span<const std::uint8_t> bytes_;
  std::string name_;
  ImageOptions options_;
  ImageInfo info_;
};

/// Decodes a whole image file, as ImageReader::read() does.
Image decode_image(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageOptions& options = {});

}  // namespace lockstep
