#include "lockstep/formats/image/image.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {

Image Image::of_size(ImageSize size, std::int64_t channels) {
  check(size.width > 0 && size.height > 0 && channels > 0, "Image: must have pixels: ", size.width,
      " x ", size.height, " x ", channels);
  Image image{size, channels, {}};
  image.pixels.resize(static_cast<std::size_t>(size.width * size.height * channels));
  return image;
}

void check_inside(const Box& box, ImageSize size) {
  const bool has_pixels = box.width > 0 && box.height > 0;
  const bool is_inside = box.left >= 0 && box.top >= 0 && box.width <= size.width - box.left &&
                         box.height <= size.height - box.top;
  check(has_pixels && is_inside, "crop: the box is empty or leaves the image of ", size.width,
      " x ", size.height, ": ", box.width, " x ", box.height, " at ", box.left, ", ", box.top);
}

void check_holds_its_pixels(const ImageView& image) {
  const auto [width, height] = image.size;
  check(width > 0 && height > 0 && image.channels > 0 &&
            image.pixels.size() == static_cast<std::size_t>(width * height * image.channels),
      "Image: the bytes must be those of ", width, " x ", height, " x ", image.channels, ": ",
      image.pixels.size());
}

Image crop(const ImageView& image, const Box& box) {
  Image part;
  crop(image, box, part);
  return part;
}

void crop(const ImageView& image, const Box& box, Image& out) {
  check_inside(box, image.size);
  out.size = {box.width, box.height};
  out.channels = image.channels;
  out.pixels.resize(static_cast<std::size_t>(box.width * box.height * image.channels));
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t* from = image.row(box.top + y) + box.left * image.channels;
    std::copy_n(from, box.width * image.channels, out.row(y));
  }
}

}  // namespace lockstep
