#include "lockstep/formats/image/orientation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_reader.h"

#include "tests/formats/image/image_bytes.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

//  stored: 1 2 3
//          4 5 6
const Image kStored{{3, 2}, 1, {1, 2, 3, 4, 5, 6}};

std::vector<std::uint8_t> pixels(int orientation) {
  return turned(kStored.view(), orientation).pixels;
}

TEST(Orientation, TurnsAsTheDrawnTable) {
  EXPECT_THAT(pixels(1), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(pixels(2), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(pixels(3), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(pixels(4), ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(pixels(5), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(pixels(6), ElementsAre(4, 1, 5, 2, 6, 3));
  EXPECT_THAT(pixels(7), ElementsAre(6, 3, 5, 2, 4, 1));
  EXPECT_THAT(pixels(8), ElementsAre(3, 6, 2, 5, 1, 4));
}

TEST(Orientation, SwapsTheSidesFrom5On) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const ImageSize expected = orientation < 5 ? ImageSize{3, 2} : ImageSize{2, 3};
    EXPECT_EQ(oriented_size({3, 2}, orientation), expected);
    EXPECT_EQ(turned(kStored.view(), orientation).size, expected);
  }
}

TEST(Orientation, FindsTheStoredPartOfEveryTurnedPart) {
  const Image stored = testing::picture({7, 5}, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image whole = turned(stored.view(), orientation);
    for (std::int64_t left = 0; left < whole.size.width; ++left) {
      for (std::int64_t top = 0; top < whole.size.height; ++top) {
        const Box box{left, top, whole.size.width - left, (whole.size.height - top + 1) / 2};
        const Box part = stored_box(box, stored.size, orientation);
        EXPECT_EQ(
            turned(crop(stored.view(), part).view(), orientation).pixels,
            crop(whole.view(), box).pixels);
      }
    }
  }
}

TEST(Orientation, OfColourKeepsPixelsTogether) {
  const Image colour{{2, 1}, 3, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(turned(colour.view(), 2).pixels, ElementsAre(4, 5, 6, 1, 2, 3));
}

TEST(Orientation, IsAppliedUnlessItIsTurnedOff) {
  const auto bytes = testing::with_segment(
      testing::jpeg({24, 16}), 0xe1, testing::exif_segment_content(testing::exif(6)));
  const ImageReader reader(bytes, "FILE");
  const ImageReader raw(bytes, "FILE", {.apply_orientation = false});
  EXPECT_EQ(reader.size(), (ImageSize{16, 24}));
  EXPECT_EQ(raw.size(), (ImageSize{24, 16}));
  EXPECT_EQ(raw.info().orientation, 6);
  EXPECT_EQ(reader.read().pixels, turned(raw.read().view(), 6).pixels);
}

TEST(Orientation, OtherNumbersAreRefused) {
  EXPECT_THROW(turned(kStored.view(), 0), InvalidArgument);
  EXPECT_THROW(oriented_size({3, 2}, 9), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
