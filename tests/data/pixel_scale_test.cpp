#include "lockstep/data/pixels/pixel_scale.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {
namespace {

using simd::InstructionSet;

std::vector<InstructionSet> kernels() {
  std::vector<InstructionSet> all;
  for (const auto set : {InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (simd::has_instructions(set)) all.push_back(set);
  }
  return all;
}

Normalization normalization_of(std::int64_t channels) {
  Normalization normalization;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    normalization.mean.push_back(0.485F - 0.03F * static_cast<float>(channel));
    normalization.std.push_back(0.229F + 0.01F * static_cast<float>(channel));
  }
  return normalization;
}

std::vector<std::uint8_t> bytes_of(std::int64_t elements) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  return bytes;
}

template <typename Out>
std::vector<Out> converted(const PixelScale& scale, const std::vector<std::uint8_t>& bytes,
    void (PixelScale::*convert)(const std::uint8_t*, Out*, std::int64_t) const) {
  std::vector<Out> out(bytes.size() + 1, 99);
  (scale.*convert)(bytes.data(), out.data(), std::ssize(bytes));
  EXPECT_EQ(out.back(), 99) << "wrote beyond the end";
  out.pop_back();
  return out;
}

std::vector<float> floats(const PixelScale& scale, const std::vector<std::uint8_t>& bytes) {
  return converted(scale, bytes, &PixelScale::to_float);
}

std::vector<std::uint16_t> halves(const PixelScale& scale, const std::vector<std::uint8_t>& bytes) {
  return converted(scale, bytes, &PixelScale::to_bfloat16);
}

TEST(PixelScale, FollowsTheFormula) {
  for (const std::int64_t channels : {1, 2, 3, 5}) {
    const auto normalization = normalization_of(channels);
    const auto bytes = bytes_of(channels * 1000);
    const auto got = floats(PixelScale(channels, normalization), bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto channel = i % static_cast<std::size_t>(channels);
      const double expected =
          (bytes[i] / 255.0 - normalization.mean[channel]) / normalization.std[channel];
      ASSERT_NEAR(got[i], expected, 5e-7) << channels << " channels, element " << i;
    }
  }
}

TEST(PixelScale, IsExactAtTheEndsAndCloseToDivision) {
  std::vector<std::uint8_t> all(256);
  std::iota(all.begin(), all.end(), std::uint8_t{0});
  const auto got = floats(PixelScale(1), all);
  EXPECT_EQ(got.front(), 0.0F);
  EXPECT_EQ(got.back(), 1.0F);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_FLOAT_EQ(got[i], static_cast<float>(i) / 255.0F);
  }
}

TEST(PixelScale, InBfloat16EqualsTensorArithmeticBitForBit) {
  std::vector<std::uint8_t> all(256);
  std::iota(all.begin(), all.end(), std::uint8_t{0});
  const auto expected = torch::arange(256, torch::kFloat).div(255).to(torch::kBFloat16);
  for (const auto kernel : kernels()) {
    const auto got = halves(PixelScale(1, {}, kernel), all);
    for (std::int64_t i = 0; i < 256; ++i) {
      EXPECT_EQ(got[static_cast<std::size_t>(i)], expected.data_ptr<torch::BFloat16>()[i].x) << i;
    }
  }
}

TEST(PixelScale, RoundsFloatToBfloat16AsTensorsDo) {
  for (const std::int64_t channels : {1, 3}) {
    const PixelScale scale(channels, normalization_of(channels));
    const auto bytes = bytes_of(channels * 256);
    auto exact = floats(scale, bytes);
    const auto expected = torch::from_blob(exact.data(), {std::ssize(exact)}).to(torch::kBFloat16);
    const auto got = halves(scale, bytes);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], expected.data_ptr<torch::BFloat16>()[i].x) << i;
    }
  }
}

TEST(PixelScale, EveryKernelGivesTheSameBits) {
  ASSERT_GE(kernels().size(), 1U);
  for (const std::int64_t channels : {1, 2, 3, 4, 5}) {
    const auto normalization = normalization_of(channels);
    const PixelScale table(channels, normalization, InstructionSet::kPlain);
    for (const std::int64_t pixels : {0, 1, 2, 15, 17, 255, 256, 257, 784, 1031}) {
      const auto bytes = bytes_of(channels * pixels);
      for (const auto kernel : kernels()) {
        const PixelScale scale(channels, normalization, kernel);
        EXPECT_EQ(floats(scale, bytes), floats(table, bytes)) << static_cast<int>(kernel);
        EXPECT_EQ(halves(scale, bytes), halves(table, bytes)) << static_cast<int>(kernel);
      }
    }
  }
}

TEST(PixelScale, RefusesWhatCannotBe) {
  EXPECT_THROW(PixelScale(0), InvalidArgument);
  EXPECT_THROW(PixelScale(3, {.mean = {0.5F}}), InvalidArgument);
  EXPECT_THROW(PixelScale(1, {.std = {0.5F, 0.5F}}), InvalidArgument);
  EXPECT_THROW(PixelScale(1, {.std = {0}}), InvalidArgument);
  EXPECT_THROW(PixelScale(1, {.std = {-1}}), InvalidArgument);
  EXPECT_THROW(PixelScale(1, {.std = {1e-42F}}), InvalidArgument);
  EXPECT_THROW(PixelScale(1, {.mean = {std::numeric_limits<float>::quiet_NaN()}}), InvalidArgument);
}

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
    EXPECT_EQ(pixels_of(floats(PixelScale(3, normalization), pixels), 3, normalization), pixels);
  }
  const Normalization grey{{0.2860F}, {0.3530F}};
  EXPECT_EQ(pixels_of(floats(PixelScale(1, grey), every_level(1)), 1, grey), every_level(1));
}

TEST(PixelsOf, WhatNoPixelHasBecomesTheNearest) {
  const std::vector<float> numbers{-3, 7, 0.5F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(pixels_of(numbers, 1, {}), ::testing::ElementsAre(0, 255, 128, 0));
}

}  // namespace
}  // namespace lockstep::data
