#include "lockstep/data/transforms/crop.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

constexpr int kTries = 10;

// As Python's round(): halves to even.
std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

double as_double(std::int64_t count) { return static_cast<double>(count); }

// The largest part in the centre whose ratio is allowed.
Box allowed_centre(ImageSize size, const RandomArea& area) {
  const double ratio = as_double(size.width) / as_double(size.height);
  const auto side = [](double exact) { return std::max<std::int64_t>(1, rounded(exact)); };
  ImageSize part = size;
  if (ratio < area.least_ratio) part.height = side(as_double(size.width) / area.least_ratio);
  if (ratio > area.most_ratio) part.width = side(as_double(size.height) * area.most_ratio);
  return {(size.width - part.width) / 2, (size.height - part.height) / 2, part.width, part.height};
}

// Draws a rectangle that is smaller than the image both ways; none if ten tries fail.
std::optional<Box> random_rectangle(
    ImageSize size, const RandomErasing& erasing, RandomStream& stream) {
  const auto pixels = static_cast<double>(size.width * size.height);
  const double log_ratio = std::log(erasing.least_ratio);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double share = stream.uniform(erasing.least_share, erasing.most_share) * pixels /
                         static_cast<double>(erasing.count);
    const double ratio = std::exp(stream.uniform(log_ratio, -log_ratio));
    const auto height = rounded(std::sqrt(share * ratio));
    const auto width = rounded(std::sqrt(share / ratio));
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

Box random_area_box(ImageSize size, const RandomArea& area, RandomStream& stream) {
  const double pixels = as_double(size.width) * as_double(size.height);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double share = stream.uniform(area.least_share, area.most_share) * pixels;
    const double ratio =
        std::exp(stream.uniform(std::log(area.least_ratio), std::log(area.most_ratio)));
    const ImageSize part{rounded(std::sqrt(share * ratio)), rounded(std::sqrt(share / ratio))};
    if (part.width == 0 || part.height == 0) continue;
    if (part.width <= size.width && part.height <= size.height)
      return random_box(size, part, stream);
  }
  return allowed_centre(size, area);
}

Box random_box(ImageSize size, ImageSize part, RandomStream& stream) {
  const std::int64_t top = stream.integer(0, size.height - part.height);
  const std::int64_t left = stream.integer(0, size.width - part.width);
  return {left, top, part.width, part.height};
}

ImageSize size_around(ImageSize image, ImageSize output, double fraction) {
  const auto scaled = [fraction](std::int64_t side) {
    return static_cast<std::int64_t>(std::floor(as_double(side) / fraction));
  };
  const ImageSize wanted{scaled(output.width), scaled(output.height)};
  const auto [width, height] = image;
  if (wanted.width == wanted.height) {
    const std::int64_t side = wanted.width;
    if (width <= height) return {side, side * height / width};
    return {side * width / height, side};
  }
  const double ratio = std::min(
      as_double(height) / as_double(wanted.height), as_double(width) / as_double(wanted.width));
  return {rounded(as_double(width) / ratio), rounded(as_double(height) / ratio)};
}

Box centre_box(ImageSize size, ImageSize part) {
  check(part.width <= size.width && part.height <= size.height, "centre_box: the image of ",
      size.width, " x ", size.height, " must hold ", part.width, " x ", part.height);
  return {rounded(as_double(size.width - part.width) / 2),
      rounded(as_double(size.height - part.height) / 2), part.width, part.height};
}

Image flip(const ImageView& image) {
  Image flipped = Image::of_size(image.size, image.channels);
  for (std::int64_t y = 0; y < image.size.height; ++y) {
    const std::uint8_t* from = image.row(y);
    std::uint8_t* to = flipped.row(y) + image.size.width * image.channels;
    for (std::int64_t x = 0; x < image.size.width; ++x, from += image.channels) {
      to -= image.channels;
      std::copy_n(from, image.channels, to);
    }
  }
  return flipped;
}

Image crop_padded(const ImageView& image, const Box& box) {
  Image part = Image::of_size({box.width, box.height}, image.channels);
  const std::int64_t left = std::max<std::int64_t>(box.left, 0);
  const std::int64_t right = std::min(box.left + box.width, image.size.width);
  const std::int64_t top = std::max<std::int64_t>(box.top, 0);
  const std::int64_t bottom = std::min(box.top + box.height, image.size.height);
  if (left >= right) return part;
  for (std::int64_t y = top; y < bottom; ++y) {
    const std::uint8_t* from = image.row(y) + left * image.channels;
    std::uint8_t* to = part.row(y - box.top) + (left - box.left) * image.channels;
    std::copy_n(from, (right - left) * image.channels, to);
  }
  return part;
}

void erase_randomly(
    std::span<float> image, ImageSize size, const RandomErasing& erasing, RandomStream& stream) {
  if (stream.uniform() >= erasing.probability) return;
  for (std::int64_t i = 0; i < erasing.count; ++i) {
    const auto box = random_rectangle(size, erasing, stream);
    if (box) fill(image, size, *box, erasing.mode, stream);
  }
}

}  // namespace lockstep::data
