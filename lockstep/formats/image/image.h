#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The size of an image in pixels.
struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;

  bool operator==(const ImageSize&) const = default;
};

/// A part of an image, in pixels from its upper left corner.
struct Box {
  std::int64_t left = 0;
  std::int64_t top = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;

  bool operator==(const Box&) const = default;
};

/// A view of pixels that belong to another object: row by row without gaps, the channels of a pixel
/// together.
struct ImageView {
  ImageSize size;
  std::int64_t channels = 3;
  std::span<const std::uint8_t> pixels;

  const std::uint8_t* row(std::int64_t y) const {
    return pixels.data() + y * size.width * channels;
  }
};

/// An image of unsigned bytes, in the order of an ImageView.
struct Image {
  ImageSize size;
  std::int64_t channels = 3;
  std::vector<std::uint8_t> pixels;

  /// Makes an image of that many bytes, all 0.
  static Image of_size(ImageSize size, std::int64_t channels = 3);

  /// Gives an image another size; its bytes must be written anew.
  void resize(ImageSize to, std::int64_t to_channels);

  ImageView view() const { return {size, channels, pixels}; }
  std::uint8_t* row(std::int64_t y) { return pixels.data() + y * size.width * channels; }
};

/// Throws InvalidArgument if a box is empty or leaves an image of that size.
void check_inside(const Box& box, ImageSize size);

/// Throws InvalidArgument unless an image has as many bytes as its size and channels say.
void check_holds_its_pixels(const ImageView& image);

/// Copies a part of an image; a box that leaves the image is an InvalidArgument.
Image crop(const ImageView& image, const Box& box);

/// Does the same into an image whose memory is used again.
void crop(const ImageView& image, const Box& box, Image& out);

/// The kinds of image files that are read.
enum class ImageKind { kJpeg, kPng };

/// Finds the kind by the first bytes, whatever the file is called.
///
/// An empty file and every other kind is a DataError; the usual ones are named (GIF, WebP, HTML,
/// text, ...).
ImageKind image_kind(std::span<const std::uint8_t> bytes, const std::string& name);

/// The orientation of the camera.
struct ExifOrientation {
  int value = 1;  ///< 1 to 8: the tag's numbers; 1 is upright
  bool is_damaged = false;
};

/// The facts about an image file that its header gives.
struct ImageInfo {
  ImageKind kind = ImageKind::kJpeg;
  ImageSize size;    ///< as stored, before the orientation is applied
  int channels = 3;  ///< of a pixel in the file: 1 grey or palette, 2 grey and alpha, 3, 4
  ExifOrientation exif;
  std::size_t first_scan = 0;  ///< of a JPEG file: the offset of its marker
  int bit_depth = 8;           ///< of a PNG file: bits of a sample
  bool interlaced = false;     ///< of a PNG file
};

/// Limits of what a file may ask for; checked after its header and before memory is allocated.
struct ImageLimits {
  std::int64_t side = 16'384;                   ///< pixels
  std::int64_t pixels = std::int64_t{1} << 26;  ///< 8192 x 8192
  int scans = 200;  ///< of a progressive JPEG: each costs a pass over the whole image
};

/// Options of reading an image file.
struct ImageOptions {
  /// Turns the image as its EXIF data says. Off: the rows as they are stored, which is what
  /// torchvision and timm train on.
  bool apply_orientation = true;
  ImageLimits limits = {};
};

/// Throws a DataError that names file and offset if an image is empty or beyond the limits.
void check_limits(
    ImageSize size, const ImageLimits& limits, const std::string& name, std::uint64_t offset);

//  EXIF's orientation says where the stored image's first row and first column belong:
//
//      1: top, left     2: top, right     3: bottom, right     4: bottom, left
//      5: left, top     6: right, top     7: right, bottom     8: left, bottom
//
//  From 5 on rows become columns.

/// Returns the size of an image after it is turned.
ImageSize oriented_size(ImageSize stored, int orientation);

/// Returns the part of the stored image that is turned into this part of the turned one.
Box stored_box(const Box& oriented, ImageSize stored, int orientation);

/// Turns an image; the orientation must be 1 to 8.
Image turned(const ImageView& stored, int orientation);

/// Finds the orientation in EXIF data, which has the form of a TIFF file.
///
/// Only the first directory is looked at. Data that break their own form, or give an orientation
/// that does not exist, are damaged and upright: cameras and editors write such, Pillow takes them
/// as upright, and the pixels are sound.
ExifOrientation exif_orientation(std::span<const std::uint8_t> tiff);

}  // namespace lockstep
