#include "lockstep/data/transforms/ops/levels.h"

#include <algorithm>
#include <utility>

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
  return replace_levels(std::move(image), table_of([threshold](int x) {
                          return clipped(x < threshold ? x : 255 - x);
                        }));
}

Image solarize_add(Image image, int addition) {
  return replace_levels(std::move(image), table_of([addition](int x) {
                          return clipped(x < 128 ? x + addition : x);
                        }));
}

}  // namespace lockstep::data
