#include "lockstep/data/transforms/ops/place.h"

#include <algorithm>

namespace lockstep::data {

Image flip(const ImageView& image) {
  Image flipped = Image::of_size(image.size, image.channels);
  for (std::int64_t y = 0; y < image.size.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = flipped.row(y) + image.size.width * image.channels;
    for (std::int64_t x = 0; x < image.size.width; ++x, from += image.channels) {
      to -= image.channels;
      std::copy_n(from, image.channels, to);
    }
  }
  return flipped;
}

Image crop_padded(const ImageView& image, const Box& box) {
  Image part = Image::of_size({box.width, box.height}, image.channels);
  const std::int64_t left = std::max<std::int64_t>(box.left, 0);
  const std::int64_t right = std::min(box.left + box.width, image.size.width);
  const std::int64_t top = std::max<std::int64_t>(box.top, 0);
  const std::int64_t bottom = std::min(box.top + box.height, image.size.height);
  if (left >= right) return part;
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* from = image.row(y) + left * image.channels;
    std::uint8_t* to = part.row(y - box.top) + (left - box.left) * image.channels;
    std::copy_n(from, (right - left) * image.channels, to);
  }
  return part;
}

}  // namespace lockstep::data
