#include "lockstep/data/transforms/centre_crop.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

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
