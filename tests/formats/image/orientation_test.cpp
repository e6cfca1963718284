#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image.h"
#include "lockstep/formats/image/image_reader.h"

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
        EXPECT_EQ(turned(crop(stored.view(), part).view(), orientation).pixels,
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

using testing::Bytes;
using testing::exif;

TEST(Exif, GivesTheOrientationInBothByteOrders) {
  for (int value = 1; value <= 8; ++value) {
    for (const bool is_little : {true, false}) {
      const auto orientation = exif_orientation(exif(value, is_little));
      EXPECT_EQ(orientation.value, value);
      EXPECT_FALSE(orientation.is_damaged);
    }
  }
}

// Pillow applies it whatever whole number it is.
TEST(Exif, TakesWholeNumbersOfEveryType) {
  const Bytes little = exif(6), big = exif(6, false);
  for (const int type : {4, 8, 9}) {
    Bytes bytes = little;
    bytes[12] = static_cast<std::uint8_t>(type);
    EXPECT_EQ(exif_orientation(bytes).value, 6) << type;
    bytes = big;
    bytes[13] = static_cast<std::uint8_t>(type);
    if (type != 8) std::swap(bytes[19], bytes[21]);  // four bytes
    EXPECT_EQ(exif_orientation(bytes).value, 6) << type;
  }
}

TEST(Exif, WithoutTheTagIsUpright) {
  Bytes other_tag = exif(6);
  other_tag[10] = 0x13;
  EXPECT_EQ(exif_orientation(other_tag).value, 1);
  EXPECT_FALSE(exif_orientation(other_tag).is_damaged);
  EXPECT_FALSE(exif_orientation(Bytes{'I', 'I', 42, 0, 8, 0, 0, 0, 0, 0}).is_damaged);
}

TEST(Exif, FindsTheTagBehindOthers) {
  Bytes bytes = exif(6);
  bytes[8] = 2;
  bytes = testing::inserted(bytes, 10, {0x0f, 1, 2, 0, 4, 0, 0, 0, 'a', 'b', 'c', 0});
  EXPECT_EQ(exif_orientation(bytes).value, 6);
}

TEST(Exif, WhatBreaksItsFormIsDamagedAndUpright) {
  const auto expect_damaged = [](const Bytes& bytes) {
    const auto orientation = exif_orientation(bytes);
    EXPECT_TRUE(orientation.is_damaged);
    EXPECT_EQ(orientation.value, 1);
  };
  const Bytes whole = exif(6);
  for (std::size_t size = 0; size < 20; ++size) {
    SCOPED_TRACE(size);
    // The two bytes that fill up the value need not be there.
    if (size != 20)
      expect_damaged({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
  }
  const auto with = [&](std::size_t at, std::uint8_t byte) {
    Bytes bytes = whole;
    bytes[at] = byte;
    return bytes;
  };
  expect_damaged(with(0, 'X'));
  expect_damaged(with(1, 'M'));
  expect_damaged(with(2, 43));
  expect_damaged(with(7, 0xff));  // the directory lies outside
  expect_damaged(with(12, 2));    // no number
  expect_damaged(with(14, 2));    // two values
  expect_damaged(with(18, 0));
  expect_damaged(with(18, 9));
  expect_damaged(with(19, 1));
  Bytes many = with(10, 0x11);
  many[8] = 200;  // more entries than bytes
  expect_damaged(many);
}

}  // namespace

}  // namespace lockstep
