#include "lockstep/formats/image/exif.h"

#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"

namespace lockstep {
namespace {

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
  expect_damaged(with(12, 4));    // no short
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
