#include "lockstep/data/transforms/random_erasing.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace lockstep::data {
namespace {

constexpr ImageSize kSize{20, 12};
constexpr float kKept = 99;

std::vector<float> erased(
    const RandomErasing& erasing, std::int64_t index = 0, std::int64_t channels = 3) {
  std::vector<float> image(static_cast<std::size_t>(kSize.width * kSize.height * channels), kKept);
  RandomStream stream({1, 2, index}, Draw::kErasing);
  erase_randomly(image, kSize, erasing, stream);
  return image;
}

// The smallest rectangle of what was erased, with the number of erased elements.
struct Erased {
  Box box;
  std::int64_t elements = 0;
};

Erased found(const std::vector<float>& image, std::int64_t channels = 3) {
  std::int64_t left = kSize.width, top = kSize.height, right = 0, bottom = 0, elements = 0;
  for (std::int64_t i = 0; i < std::ssize(image); ++i) {
    if (image[static_cast<std::size_t>(i)] == kKept) continue;
    ++elements;
    const std::int64_t x = i / channels % kSize.width;
    const std::int64_t y = i / channels / kSize.width;
    left = std::min(left, x);
    right = std::max(right, x + 1);
    top = std::min(top, y);
    bottom = std::max(bottom, y + 1);
  }
  return {{left, top, right - left, bottom - top}, elements};
}

TEST(RandomErasing, ErasesOneFullRectangle) {
  for (const std::int64_t channels : {1, 3}) {
    std::set<std::int64_t> lefts, tops;
    for (std::int64_t index = 0; index < 300; ++index) {
      const auto [box, elements] = found(erased({.probability = 1}, index, channels), channels);
      ASSERT_EQ(elements, box.width * box.height * channels);
      ASSERT_LT(box.width, kSize.width);
      ASSERT_LT(box.height, kSize.height);
      lefts.insert(box.left);
      tops.insert(box.top);
    }
    EXPECT_EQ(*lefts.begin(), 0);
    EXPECT_GT(*lefts.rbegin(), 15);
    EXPECT_GT(*tops.rbegin(), 7);
  }
}

TEST(RandomErasing, ErasesNothingWithoutProbability) {
  for (std::int64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(found(erased({.probability = 0}, index)).elements, 0);
  }
}

TEST(RandomErasing, FillsAsItsModeSays) {
  const auto values = [](ErasingMode mode) {
    std::set<float> all;
    for (const float value : erased({.probability = 1, .mode = mode, .least_share = 0.2})) {
      if (value != kKept) all.insert(value);
    }
    return all;
  };
  EXPECT_EQ(values(ErasingMode::kConstant), std::set<float>{0});
  EXPECT_EQ(values(ErasingMode::kColour).size(), 3U);
  EXPECT_GT(values(ErasingMode::kPixel).size(), 100U);
}

TEST(RandomErasing, GivesEachChannelItsColour) {
  const auto image = erased({.probability = 1, .mode = ErasingMode::kColour, .least_share = 0.2});
  std::vector<std::set<float>> colours(3);
  for (std::size_t i = 0; i < image.size(); ++i) {
    if (image[i] != kKept) colours[i % 3].insert(image[i]);
  }
  for (const auto& values : colours) EXPECT_EQ(values.size(), 1U);
}

TEST(RandomErasing, SharesTheAreaAmongRectangles) {
  std::int64_t most = 0;
  for (std::int64_t index = 0; index < 200; ++index) {
    const auto [box, elements] = found(erased({.probability = 1, .count = 4}, index));
    most = std::max(most, elements);
  }
  EXPECT_LE(most, 3 * kSize.width * kSize.height * 0.45);
  EXPECT_GT(most, 3 * kSize.width * kSize.height * 0.15);
}

// No rectangle of more than the whole image can be placed.
TEST(RandomErasing, GivesUpAfterTenTries) {
  EXPECT_EQ(found(erased({.probability = 1, .least_share = 2, .most_share = 3})).elements, 0);
}

}  // namespace
}  // namespace lockstep::data
