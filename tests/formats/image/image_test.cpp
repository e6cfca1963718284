#include "lockstep/formats/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

const Image kImage{{3, 2}, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};

TEST(Image, OfASizeIsBlack) {
  const Image image = Image::of_size({3, 2});
  EXPECT_EQ(image.pixels, std::vector<std::uint8_t>(18, 0));
  EXPECT_THROW(Image::of_size({0, 2}), InvalidArgument);
  EXPECT_THROW(Image::of_size({3, 0}), InvalidArgument);
  EXPECT_THROW(Image::of_size({3, 2}, 0), InvalidArgument);
}

TEST(Image, IsCroppedPixelByPixel) {
  const Image part = crop(kImage.view(), {1, 0, 2, 2});
  EXPECT_EQ(part.size, (ImageSize{2, 2}));
  EXPECT_EQ(part.channels, 2);
  EXPECT_THAT(part.pixels, ElementsAre(3, 4, 5, 6, 9, 10, 11, 12));
  EXPECT_EQ(crop(kImage.view(), {0, 0, 3, 2}).pixels, kImage.pixels);
}

TEST(Image, IsNotCroppedBeyondItsEdges) {
  for (const Box& box :
       {Box{0, 0, 4, 1}, {2, 0, 2, 1}, {0, 1, 1, 2}, {-1, 0, 1, 1}, {0, -1, 1, 1}, {0, 0, 0, 1}}) {
    EXPECT_THROW(crop(kImage.view(), box), InvalidArgument);
  }
}

TEST(Image, MustHaveTheBytesOfItsSize) {
  check_holds_its_pixels(kImage.view());
  EXPECT_THROW(check_holds_its_pixels(Image{{3, 2}, 3, kImage.pixels}.view()), InvalidArgument);
  EXPECT_THROW(check_holds_its_pixels(Image{{0, 0}, 3, {}}.view()), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
