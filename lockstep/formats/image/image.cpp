#include "lockstep/formats/image/image.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {

Image Image::of_size(ImageSize size, std::int64_t channels) {
  check(
      size.width > 0 && size.height > 0 && channels > 0,
      "Image: must have pixels: ",
      size.width,
      " x ",
      size.height,
      " x ",
      channels);
  Image image{size, channels, {}};
  image.pixels.resize(static_cast<std::size_t>(size.width * size.height * channels));
  return image;
}

Image crop(const ImageView& image, const Box& box) {
  check(
      box.left >= 0 && box.top >= 0 && box.width <= image.size.width - box.left &&
          box.height <= image.size.height - box.top,
      "crop: the box leaves the image of ",
      image.size.width,
      " x ",
      image.size.height,
      ": ",
      box.width,
      " x ",
      box.height,
      " at ",
      box.left,
      ", ",
      box.top);
  Image part = Image::of_size({box.width, box.height}, image.channels);
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t* from = image.row(box.top + y) + box.left * image.channels;
    std::copy_n(from, box.width * image.channels, part.row(y));
  }
  return part;
}

}  // namespace lockstep
