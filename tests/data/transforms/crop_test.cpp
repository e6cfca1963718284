#include "lockstep/data/transforms/crop.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

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

}  // namespace

}  // namespace lockstep::data
