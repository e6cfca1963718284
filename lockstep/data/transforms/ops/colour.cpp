#include "lockstep/data/transforms/ops/colour.h"

#include <numeric>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/ops/blend.h"
#include "lockstep/data/transforms/ops/levels.h"

namespace lockstep::data {
namespace {

// The weights of red, green and blue in units of 2^-16, and a half to round.
std::uint8_t brightness_of(const std::uint8_t* pixel) {
  const std::uint32_t sum = pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U;
  return static_cast<std::uint8_t>(sum >> 16);
}

LevelTable blend_table(std::uint8_t from, double factor) {
  LevelTable table{};
  for (std::size_t x = 0; x < table.size(); ++x) {
    table[x] = blend(from, static_cast<std::uint8_t>(x), static_cast<float>(factor));
  }
  return table;
}

// Rounded to nearest, halves up.
std::uint8_t mean_brightness(const ImageView& image) {
  std::int64_t sum = 0;
  for (std::size_t at = 0; at < image.pixels.size(); at += 3) {
    sum += brightness_of(image.pixels.data() + at);
  }
  const std::int64_t count = image.size.width * image.size.height;
  return static_cast<std::uint8_t>((2 * sum + count) / (2 * count));
}

void check_colours(const char* operation, std::int64_t channels) {
  check(channels == 3, operation, ": the image must have 3 channels: ", channels);
}

}  // namespace

Image grey(const ImageView& image) {
  check_colours("grey", image.channels);
  Image greys = Image::of_size(image.size, 1);
  for (std::size_t i = 0; i < greys.pixels.size(); ++i) {
    greys.pixels[i] = brightness_of(image.pixels.data() + 3 * i);
  }
  return greys;
}

Image brightness(Image image, double factor) {
  return replace_levels(std::move(image), blend_table(0, factor));
}

Image contrast(Image image, double factor) {
  check_colours("contrast", image.channels);
  const std::uint8_t mean = mean_brightness(image.view());
  return replace_levels(std::move(image), blend_table(mean, factor));
}

Image saturation(Image image, double factor) {
  check_colours("saturation", image.channels);
  for (std::size_t at = 0; at < image.pixels.size(); at += 3) {
    std::uint8_t* pixel = image.pixels.data() + at;
    const std::uint8_t level = brightness_of(pixel);
    for (int channel = 0; channel < 3; ++channel) {
      pixel[channel] = blend(level, pixel[channel], static_cast<float>(factor));
    }
  }
  return image;
}

}  // namespace lockstep::data
