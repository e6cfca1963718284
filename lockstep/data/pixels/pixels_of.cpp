#include "lockstep/data/pixels/pixels_of.h"

#include <cmath>

namespace lockstep::data {

std::vector<std::uint8_t> pixels_of(
    std::span<const float> numbers, std::int64_t channels, const Normalization& normalization) {
  const auto& [mean, std] = normalization;
  std::vector<std::uint8_t> pixels(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t channel = i % static_cast<std::size_t>(channels);
    const double scale = std.empty() ? 1 : static_cast<double>(std[channel]);
    const double shift = mean.empty() ? 0 : static_cast<double>(mean[channel]);
    const double level = 255 * (static_cast<double>(numbers[i]) * scale + shift);
    pixels[i] = static_cast<std::uint8_t>(std::lround(std::fmin(std::fmax(level, 0), 255)));
  }
  return pixels;
}

}  // namespace lockstep::data
