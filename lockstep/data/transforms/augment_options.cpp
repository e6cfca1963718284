#include "lockstep/data/transforms/augment_options.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// CIFAR has 32, Tiny ImageNet 64.
constexpr std::int64_t kSmallOutput = 64;

// As that of the images that are read; products of sizes stay far from overflow.
constexpr std::int64_t kLongestSide = 16'384;

// Bounds of shares and ratios, for the same reason.
constexpr double kLeast = 0.001;
constexpr double kMost = 1000;

bool is_small(ImageSize size) { return std::max(size.width, size.height) <= kSmallOutput; }

void check_share(const char* what, double share) {
  check(0 <= share && share <= 1, "AugmentOptions: ", what, " must be from 0 to 1: ", share);
}

void check_range(const char* what, double least, double most) {
  check(
      kLeast <= least && least <= most && most <= kMost, "AugmentOptions: ", what,
      " must be a range between ", kLeast, " and ", kMost, ": ", least, " to ", most);
}

void check_jitter(const ColourJitter& jitter) {
  for (const double bound : {jitter.brightness, jitter.contrast, jitter.saturation}) {
    check(
        0 <= bound && std::isfinite(bound),
        "AugmentOptions: colour jitter must not be negative: ", bound);
  }
}

void check_erasing(const RandomErasing& erasing) {
  check_share("the probability of erasing", erasing.probability);
  check_range("the erased share", erasing.least_share, erasing.most_share);
  check_range("the erased ratio", erasing.least_ratio, 1);
  check(erasing.count > 0, "AugmentOptions: erased rectangles must be counted: ", erasing.count);
}

AugmentOptions crop_flip_options(ImageSize output) {
  AugmentOptions options{.output = output, .interpolation = Interpolation::kBilinear, .flip = 0.5};
  options.crop = is_small(output) ? CropMode::kPadded : CropMode::kResized;
  return options;
}

AugmentOptions timm_options(ImageSize output) {
  return {
      .output = output,
      .crop = CropMode::kResized,
      .flip = 0.5,
      .rand_augment = "rand-m9-mstd0.5-inc1",
      .colour_jitter = {0.4, 0.4, 0.4},
      .erasing = {.probability = 0.25}};
}

AugmentOptions centre_options(ImageSize output) {
  return {.output = output, .centre_fraction = is_small(output) ? 1 : 0.875};
}

}  // namespace

Normalization imagenet_normalization() {
  return {.mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}};
}

AugmentOptions augment_options(
    AugmentKind kind, ImageSize output, const Normalization& normalization) {
  AugmentOptions options = kind == AugmentKind::kTimm       ? timm_options(output)
                           : kind == AugmentKind::kCropFlip ? crop_flip_options(output)
                                                            : centre_options(output);
  options.normalization = normalization;
  return options;
}

void check_options(const AugmentOptions& options) {
  const auto [width, height] = options.output;
  check(
      0 < width && width <= kLongestSide && 0 < height && height <= kLongestSide,
      "AugmentOptions: the output must have 1 to ", kLongestSide, " pixels a side: ", width, " x ",
      height);
  check_range("the fraction of the centre", options.centre_fraction, 1);
  check(
      0 <= options.padding && options.padding <= kLongestSide,
      "AugmentOptions: padding must be 0 to ", kLongestSide, ": ", options.padding);
  check_range("the area's share", options.area.least_share, options.area.most_share);
  check_range("the area's ratio", options.area.least_ratio, options.area.most_ratio);
  check_share("the probability of a flip", options.flip);
  check_jitter(options.colour_jitter);
  check_erasing(options.erasing);
}

}  // namespace lockstep::data
