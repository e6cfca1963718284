#include "lockstep/data/transforms/ops/levels.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

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

}  // namespace

Image replace_levels(Image image, const LevelTable& table) {
  for (std::uint8_t& level : image.pixels) level = table[level];
  return image;
}

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

}  // namespace lockstep::data
