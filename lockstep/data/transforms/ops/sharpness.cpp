#include "lockstep/data/transforms/ops/blend.h"
#include "lockstep/data/transforms/ops/colour.h"

namespace lockstep::data {
namespace {

// Pillow's filter SMOOTH: the pixel counts 5, each of its 8 neighbours 1, of 13.
constexpr float kNeighbour = 1.F / 13;
constexpr float kPixel = 5.F / 13;

// Smooths a row between its first and last pixel. The order of the sums is Pillow's: bytes that
// depend on the last bit of a float come out the same.
void smooth_row(
    const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below,
    std::int64_t channels, std::int64_t bytes, std::uint8_t* __restrict out) {
  const auto three = [channels](const std::uint8_t* at, float middle) {
    return static_cast<float>(at[-channels]) * kNeighbour + static_cast<float>(at[0]) * middle +
           static_cast<float>(at[channels]) * kNeighbour;
  };
  for (std::int64_t i = channels; i < bytes - channels; ++i) {
    float sum = 0.5F;
    sum += three(below + i, kNeighbour);
    sum += three(row + i, kPixel);
    sum += three(above + i, kNeighbour);
    out[i] = static_cast<std::uint8_t>(static_cast<int>(sum));  // at most 255.5
  }
}

}  // namespace

Image sharpness(const ImageView& image, double factor) {
  Image sharp{image.size, image.channels, {image.pixels.begin(), image.pixels.end()}};
  if (image.size.width < 3 || image.size.height < 3) return sharp;
  const std::int64_t bytes = image.size.width * image.channels;
  std::vector<std::uint8_t> smooth(static_cast<std::size_t>(bytes));
  for (std::int64_t y = 1; y < image.size.height - 1; ++y) {
    const std::uint8_t* row = image.row(y);
    smooth_row(row - bytes, row, row + bytes, image.channels, bytes, smooth.data());
    std::uint8_t* out = sharp.row(y);
    for (std::int64_t i = image.channels; i < bytes - image.channels; ++i) {
      out[i] = blend(smooth[static_cast<std::size_t>(i)], row[i], static_cast<float>(factor));
    }
  }
  return sharp;
}

}  // namespace lockstep::data
