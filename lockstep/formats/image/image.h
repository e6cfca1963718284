#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

/// The pixels of an image that someone else holds: row by row without gaps, the channels of a pixel
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

}  // namespace lockstep
