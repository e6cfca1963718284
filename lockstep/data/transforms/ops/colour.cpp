#include "lockstep/data/transforms/ops/colour.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// For each level of a channel the one that takes its place.
using LevelTable = std::array<std::uint8_t, 256>;

Image replace_levels(Image image, const LevelTable& table) {
  for (std::uint8_t& level : image.pixels) level = table[level];
  return image;
}

template <typename Level>
LevelTable table_of(const Level& level) {
  LevelTable table{};
  for (int x = 0; x < 256; ++x) table[static_cast<std::size_t>(x)] = level(x);
  return table;
}

std::uint8_t clipped(std::int64_t x) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(x, 0, 255));
}

using Histogram = std::array<std::int64_t, 256>;

std::vector<Histogram> histograms(const ImageView& image) {
  const auto channels = static_cast<std::size_t>(image.channels);
  std::vector<Histogram> counts(channels);
  for (std::size_t start = 0; start < image.pixels.size(); start += channels) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      ++counts[channel][image.pixels[start + channel]];
    }
  }
  return counts;
}

LevelTable identity() {
  LevelTable table{};
  std::iota(table.begin(), table.end(), std::uint8_t{0});
  return table;
}

std::size_t lowest_level(const Histogram& counts) {
  return static_cast<std::size_t>(std::find_if(counts.begin(), counts.end(), [](auto count) {
    return count > 0;
  }) - counts.begin());
}

std::size_t highest_level(const Histogram& counts) {
  return static_cast<std::size_t>(
      counts.rend() -
      std::find_if(counts.rbegin(), counts.rend(), [](auto count) { return count > 0; }) - 1);
}

LevelTable stretched(const Histogram& counts) {
  const std::size_t low = lowest_level(counts);
  const std::size_t high = highest_level(counts);
  if (high <= low) return identity();
  const double scale = 255.0 / static_cast<double>(high - low);
  const double offset = -static_cast<double>(low) * scale;
  LevelTable table{};
  for (std::size_t x = 0; x < table.size(); ++x) {
    const double level = static_cast<double>(x) * scale + offset;
    table[x] = static_cast<std::uint8_t>(std::clamp(level, 0., 255.));
  }
  return table;
}

// Whole steps of 1/255 of all pixels but those of the highest level, as Pillow counts them.
LevelTable evened(const Histogram& counts) {
  const std::int64_t highest = counts[highest_level(counts)];
  const std::int64_t step =
      (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - highest) / 255;
  if (step == 0) return identity();
  LevelTable table{};
  std::int64_t below = step / 2;
  for (std::size_t x = 0; x < table.size(); ++x) {
    table[x] = static_cast<std::uint8_t>(std::min<std::int64_t>(below / step, 255));
    below += counts[x];
  }
  return table;
}

Image with_tables(Image image, LevelTable (*table_of)(const Histogram&)) {
  std::vector<LevelTable> tables;
  for (const Histogram& counts : histograms(image.view())) tables.push_back(table_of(counts));
  for (std::size_t start = 0; start < image.pixels.size(); start += tables.size()) {
    for (std::size_t channel = 0; channel < tables.size(); ++channel) {
      std::uint8_t& level = image.pixels[start + channel];
      level = tables[channel][level];
    }
  }
  return image;
}

// By ITU-R 601-2: the weights of red, green and blue in units of 2^-16, and a half to round.
std::uint8_t brightness_of(const std::uint8_t* pixel) {
  const std::uint32_t sum = pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U;
  return static_cast<std::uint8_t>(sum >> 16);
}

// The level at `factor` on the line from one level to another, beyond 1 on its extension; cut off
// at 0 and 255, and else towards 0 as Pillow's Image.blend does.
std::uint8_t blend(std::uint8_t from, std::uint8_t to, float factor) {
  const float level = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(static_cast<int>(std::clamp(level, 0.F, 255.F)));
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

// Pillow's filter SMOOTH: the pixel counts 5, each of its 8 neighbours 1, of 13.
constexpr float kNeighbour = 1.F / 13;
constexpr float kPixel = 5.F / 13;

// Smooths a row between its first and last pixel. The order of the sums is Pillow's: bytes that
// depend on the last bit of a float come out the same.
void smooth_row(const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below,
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

Image invert(Image image) {
  for (std::uint8_t& level : image.pixels) level = static_cast<std::uint8_t>(~level);
  return image;
}

Image posterize(Image image, int bits) {
  check(bits >= 0, "posterize: the bits to keep must not be negative: ", bits);
  const auto mask = static_cast<std::uint8_t>(bits >= 8 ? 0xFF : ~((1 << (8 - bits)) - 1));
  for (std::uint8_t& level : image.pixels) level &= mask;
  return image;
}

Image solarize(Image image, int threshold) {
  return replace_levels(std::move(image),
      table_of([threshold](int x) { return clipped(x < threshold ? x : 255 - x); }));
}

Image solarize_add(Image image, int addition) {
  return replace_levels(std::move(image),
      table_of([addition](int x) { return clipped(x < 128 ? x + addition : x); }));
}

Image auto_contrast(Image image) { return with_tables(std::move(image), stretched); }

Image equalize(Image image) { return with_tables(std::move(image), evened); }

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
