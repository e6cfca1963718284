#include "lockstep/train/input/sheet_numbers.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(SheetNumbers, AreTheirRangeAndTheFirstOfThem) {
  std::vector<double> numbers(10);
  std::iota(numbers.begin(), numbers.end(), -2.0);
  const SheetNumbers seen = numbers_of_sample(numbers, {1, 1, 10});
  EXPECT_EQ(seen.least, -2);
  EXPECT_EQ(seen.mean, 2.5);
  EXPECT_EQ(seen.most, 7);
  EXPECT_THAT(seen.first, ElementsAre(-2, -1, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(seen.shape, ElementsAre(1, 1, 10));
}

TEST(SheetNumbers, ANumberThatIsNoneIsNotHidden) {
  const std::vector<double> numbers{1, std::nan(""), 3};
  const SheetNumbers seen = numbers_of_sample(numbers, {3, 1, 1});
  for (const double number : {seen.least, seen.mean, seen.most}) EXPECT_TRUE(std::isnan(number));
}

TEST(SheetNumbers, OnlyGreyAndColourWithTwoSidesArePictures) {
  EXPECT_TRUE(is_pictured({1, 2, 2}));
  EXPECT_TRUE(is_pictured({3, 28, 28}));
  EXPECT_FALSE(is_pictured({2, 28, 28}));
  EXPECT_FALSE(is_pictured({1, 1, 64}));
  EXPECT_FALSE(is_pictured({3, 64, 1}));
  EXPECT_FALSE(is_pictured({28, 28})) << "an input without channels";
}

TEST(SheetNumbers, AreSpreadFromBlackToWhiteUnlessTheyArePixels) {
  std::vector<float> pixels{0, 0.25F, 1.0005F}, others{-1, 0, 3}, equal{2, 2};
  EXPECT_FALSE(spread_beyond_pixels(pixels));
  EXPECT_THAT(pixels, ElementsAre(0, 0.25F, 1.0005F));
  EXPECT_TRUE(spread_beyond_pixels(others));
  EXPECT_THAT(others, ElementsAre(0, 0.25F, 1));
  EXPECT_TRUE(spread_beyond_pixels(equal));
  EXPECT_THAT(equal, ElementsAre(0, 0));
}

}  // namespace
}  // namespace lockstep
