#include "lockstep/data/transforms/random_erasing.h"

#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/data/transforms/crop.h"

namespace lockstep::data {
namespace {

constexpr int kErasingTries = 10;

// Draws a rectangle that is smaller than the image both ways; none if ten tries fail.
std::optional<Box> random_rectangle(
    ImageSize size, const RandomErasing& erasing, RandomStream& stream) {
  const auto pixels = static_cast<double>(size.width * size.height);
  const double log_ratio = std::log(erasing.least_ratio);
  for (int attempt = 0; attempt < kErasingTries; ++attempt) {
    const double share = stream.uniform(erasing.least_share, erasing.most_share) * pixels /
                         static_cast<double>(erasing.count);
    const double ratio = std::exp(stream.uniform(log_ratio, -log_ratio));
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(share * ratio)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(share / ratio)));
    if (width < size.width && height < size.height)
      return random_box(size, {width, height}, stream);
  }
  return std::nullopt;
}

void fill(std::span<float> image, ImageSize size, const Box& box, ErasingMode mode,
    RandomStream& stream) {
  const std::size_t channels = image.size() / static_cast<std::size_t>(size.width * size.height);
  std::vector<float> colour(channels, 0);
  if (mode == ErasingMode::kColour) stream.fill_normal(colour);
  for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
    const auto start = static_cast<std::size_t>(y * size.width + box.left) * channels;
    const auto row = image.subspan(start, static_cast<std::size_t>(box.width) * channels);
    if (mode == ErasingMode::kPixel) {
      stream.fill_normal(row);
    } else {
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = colour[i % channels];
    }
  }
}

}  // namespace

void erase_randomly(
    std::span<float> image, ImageSize size, const RandomErasing& erasing, RandomStream& stream) {
  if (stream.uniform() >= erasing.probability) return;
  for (std::int64_t i = 0; i < erasing.count; ++i) {
    const auto box = random_rectangle(size, erasing, stream);
    if (box) fill(image, size, *box, erasing.mode, stream);
  }
}

}  // namespace lockstep::data
