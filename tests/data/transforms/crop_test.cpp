#include "lockstep/data/transforms/crop.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

RandomStream crop_stream(std::int64_t index) { return {{1, 2, index}, Draw::kCrop}; }

TEST(RandomAreaBox, StaysInTheImageAndInItsBounds) {
  const RandomArea area{0.2, 0.5, 0.5, 2};
  for (const ImageSize size : {ImageSize{32, 32}, {500, 375}, {90, 100}}) {
    for (std::int64_t index = 0; index < 500; ++index) {
      auto stream = crop_stream(index);
      const Box box = random_area_box(size, area, stream);
      ASSERT_GE(box.left, 0);
      ASSERT_GE(box.top, 0);
      ASSERT_LE(box.left + box.width, size.width);
      ASSERT_LE(box.top + box.height, size.height);
      const auto width = static_cast<double>(box.width);
      const auto height = static_cast<double>(box.height);
      const double pixels = static_cast<double>(size.width * size.height);
      EXPECT_NEAR(width * height / pixels, 0.35, 0.15 + 0.03);
      EXPECT_NEAR(std::log(width / height), 0, std::log(2) + 0.06);
    }
  }
}

TEST(RandomAreaBox, CountsRatiosAsWidthByHeight) {
  for (std::int64_t index = 0; index < 50; ++index) {
    auto stream = crop_stream(index);
    const Box box = random_area_box({100, 100}, {0.1, 0.2, 2, 3}, stream);
    EXPECT_GT(box.width, 3 * box.height / 2);
  }
}

TEST(RandomAreaBox, TakesTheWholeIfNothingElseIsAllowed) {
  auto stream = crop_stream(0);
  EXPECT_EQ(random_area_box({40, 30}, {1, 1, 4. / 3., 4. / 3.}, stream), (Box{0, 0, 40, 30}));
}

// Ten tries cannot succeed: the whole area of a square does not fit.
TEST(RandomAreaBox, FallsBackToTheCentre) {
  for (std::int64_t index = 0; index < 20; ++index) {
    auto stream = crop_stream(index);
    EXPECT_EQ(
        random_area_box({400, 100}, {1, 1, 3. / 4., 4. / 3.}, stream), (Box{133, 0, 133, 100}));
    EXPECT_EQ(
        random_area_box({100, 401}, {1, 1, 3. / 4., 4. / 3.}, stream), (Box{0, 134, 100, 133}));
    EXPECT_EQ(random_area_box({100, 100}, {1, 1, 2, 3}, stream), (Box{0, 25, 100, 50}));
  }
}

// A part of no pixels is drawn again; timm would pass it on to Pillow, which fails.
TEST(RandomAreaBox, HasPixelsEvenInTinyImages) {
  for (std::int64_t index = 0; index < 200; ++index) {
    auto stream = crop_stream(index);
    const Box box = random_area_box({1, 2}, {}, stream);
    EXPECT_GE(box.width * box.height, 1);
    EXPECT_EQ(random_area_box({1, 1}, {1, 1, 3, 4}, stream), (Box{0, 0, 1, 1}));
    EXPECT_EQ(random_area_box({1, 1}, {1, 1, 1. / 4, 1. / 3}, stream), (Box{0, 0, 1, 1}));
  }
}

TEST(RandomBox, ReachesEveryPlace) {
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  for (std::int64_t index = 0; index < 500; ++index) {
    auto stream = crop_stream(index);
    const Box box = random_box({8, 6}, {6, 5}, stream);
    EXPECT_EQ(box.width, 6);
    EXPECT_EQ(box.height, 5);
    places.insert({box.left, box.top});
  }
  EXPECT_EQ(places.size(), 6U);
  EXPECT_EQ(*places.begin(), std::pair(0L, 0L));
  EXPECT_EQ(*places.rbegin(), std::pair(2L, 1L));
}

// 256 at 224, as everywhere in the field; the longer side is cut off, not rounded.
TEST(SizeAround, ScalesTheShorterSide) {
  EXPECT_EQ(size_around({500, 375}, {224, 224}, 0.875), (ImageSize{341, 256}));
  EXPECT_EQ(size_around({375, 500}, {224, 224}, 0.875), (ImageSize{256, 341}));
  EXPECT_EQ(size_around({32, 32}, {32, 32}, 1), (ImageSize{32, 32}));
  EXPECT_EQ(size_around({1, 1}, {32, 32}, 1), (ImageSize{32, 32}));
}

TEST(SizeAround, HoldsOutputsThatAreNotSquare) {
  for (const ImageSize image : {ImageSize{500, 375}, {30, 400}, {7, 7}}) {
    const ImageSize around = size_around(image, {96, 64}, 0.9);
    EXPECT_GE(around.width, 106);
    EXPECT_GE(around.height, 71);
    EXPECT_TRUE(around.width == 106 || around.height == 71);
  }
}

TEST(CentreBox, RoundsHalvesToEven) {
  EXPECT_EQ(centre_box({10, 11}, {4, 4}), (Box{3, 4, 4, 4}));
  EXPECT_EQ(centre_box({9, 7}, {4, 4}), (Box{2, 2, 4, 4}));
  EXPECT_EQ(centre_box({4, 4}, {4, 4}), (Box{0, 0, 4, 4}));
  EXPECT_THROW(centre_box({3, 4}, {4, 4}), InvalidArgument);
  EXPECT_THROW(centre_box({4, 3}, {4, 4}), InvalidArgument);
}

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
  // Of each channel.
  const auto values = [](ErasingMode mode) {
    const auto image = erased({.probability = 1, .mode = mode, .least_share = 0.2});
    std::vector<std::set<float>> all(3);
    for (std::size_t i = 0; i < image.size(); ++i)
      if (image[i] != kKept) all[i % 3].insert(image[i]);
    return all;
  };
  EXPECT_EQ(values(ErasingMode::kConstant), std::vector<std::set<float>>(3, {0}));
  const auto colours = values(ErasingMode::kColour);
  for (const auto& channel : colours) EXPECT_EQ(channel.size(), 1U);
  EXPECT_NE(colours[0], colours[1]);
  EXPECT_NE(colours[1], colours[2]);
  EXPECT_NE(colours[0], colours[2]);
  for (const auto& channel : values(ErasingMode::kPixel)) EXPECT_GT(channel.size(), 30U);
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
