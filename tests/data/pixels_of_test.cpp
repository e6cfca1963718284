#include "lockstep/data/pixels/pixels_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {
namespace {

// 256 pixels in which each channel has every level.
std::vector<std::uint8_t> every_level(std::int64_t channels) {
  std::vector<std::uint8_t> pixels;
  for (int level = 0; level < 256; ++level)
    for (std::int64_t channel = 0; channel < channels; ++channel)
      pixels.push_back(static_cast<std::uint8_t>(level + 85 * channel));
  return pixels;
}

TEST(PixelsOf, AreThoseOfWhichTheScaleMadeTheNumbers) {
  for (const Normalization& normalization : {Normalization{}, imagenet_normalization(),
           Normalization{{0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}}}) {
    const auto pixels = every_level(3);
    std::vector<float> numbers(pixels.size());
    PixelScale(3, normalization).to_float(pixels.data(), numbers.data(), std::ssize(pixels));
    EXPECT_EQ(pixels_of(numbers, 3, normalization), pixels);
  }
  const auto grey = every_level(1);
  std::vector<float> numbers(grey.size());
  PixelScale(1, {{0.2860F}, {0.3530F}}).to_float(grey.data(), numbers.data(), std::ssize(grey));
  EXPECT_EQ(pixels_of(numbers, 1, {{0.2860F}, {0.3530F}}), grey);
}

TEST(PixelsOf, WhatNoPixelHasBecomesTheNearest) {
  const std::vector<float> numbers{-3, 7, 0.5F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(pixels_of(numbers, 1, {}), ::testing::ElementsAre(0, 255, 128, 0));
}

}  // namespace
}  // namespace lockstep::data
