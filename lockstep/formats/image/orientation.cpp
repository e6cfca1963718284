#include "lockstep/formats/image/orientation.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// Says how a turned image comes from the stored one: first its axes are swapped, then it is
/// mirrored.
struct Turn {
  bool swaps_axes;
  bool mirrors_columns;
  bool mirrors_rows;
};

Turn turn_of(int orientation) {
  check(
      1 <= orientation && orientation <= 8,
      "orientation: must be 1 to 8, as in EXIF: ", orientation);
  return {
      .swaps_axes = orientation >= 5,
      .mirrors_columns =
          orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7,
      .mirrors_rows = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8};
}

}  // namespace

ImageSize oriented_size(ImageSize stored, int orientation) {
  if (!turn_of(orientation).swaps_axes) return stored;
  return {stored.height, stored.width};
}

Box stored_box(const Box& oriented, ImageSize stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize whole = oriented_size(stored, orientation);
  Box box = oriented;
  if (turn.mirrors_columns) box.left = whole.width - box.left - box.width;
  if (turn.mirrors_rows) box.top = whole.height - box.top - box.height;
  if (turn.swaps_axes) {
    std::swap(box.left, box.top);
    std::swap(box.width, box.height);
  }
  return box;
}

Image turned(const ImageView& stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize size = oriented_size(stored.size, orientation);
  Image image = Image::of_size(size, stored.channels);
  const auto channels = stored.channels;
  for (std::int64_t y = 0; y < size.height; ++y) {
    const std::int64_t from_y = turn.mirrors_rows ? size.height - 1 - y : y;
    std::uint8_t* out = image.row(y);
    for (std::int64_t x = 0; x < size.width; ++x, out += channels) {
      const std::int64_t from_x = turn.mirrors_columns ? size.width - 1 - x : x;
      const std::uint8_t* pixel = turn.swaps_axes ? stored.row(from_x) + from_y * channels
                                                  : stored.row(from_y) + from_x * channels;
      std::copy_n(pixel, channels, out);
    }
  }
  return image;
}

}  // namespace lockstep
