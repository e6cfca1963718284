#include "lockstep/data/dataset.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/data/image_sets.h"

namespace lockstep::data {
namespace {

InMemoryImages::Parts three_images() {
  return {.name = "three",
      .shape = {.channels = 1, .height = 1, .width = 2},
      .classes = 5,
      .pixels = {0, 1, 10, 11, 20, 21},
      .labels = {4, 2, 0}};
}

TEST(InMemoryImages, GivesPixelsAndLabels) {
  const InMemoryImages images(three_images());
  EXPECT_EQ(images.size(), 3);
  EXPECT_EQ(images.name(), "three");
  EXPECT_EQ(images.classes(), 5);
  EXPECT_EQ(images.pixels(1)[0], 10);
  EXPECT_EQ(images.pixels(2)[1], 21);
  EXPECT_EQ(images.label(0), 4);
}

TEST(InMemoryImages, RepeatsWithoutCopying) {
  const InMemoryImages images(three_images());
  const auto longer = images.repeated(2).repeated(2);
  EXPECT_EQ(longer.size(), 12);
  EXPECT_EQ(images.size(), 3);
  for (std::int64_t i = 0; i < longer.size(); ++i) {
    EXPECT_EQ(longer.pixels(i), images.pixels(i % 3)) << i;
    EXPECT_EQ(longer.label(i), images.label(i % 3)) << i;
  }
  EXPECT_THROW(images.repeated(0), InvalidArgument);
  EXPECT_THROW(images.repeated(std::int64_t{1} << 62), InvalidArgument);
}

TEST(InMemoryImages, RefusesPartsThatDoNotFit) {
  auto parts = three_images();
  parts.pixels.pop_back();
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.classes = 4;
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.shape.height = 0;
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.labels.clear();
  parts.pixels.clear();
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
}

TEST(Mock, IsFixedByItsOptions) {
  const MockOptions options{
      .size = 20, .shape = {.channels = 3, .height = 4, .width = 5}, .classes = 7, .seed = 9};
  const auto one = mock(options);
  const auto two = mock(options);
  auto other_options = options;
  other_options.seed = 10;
  const auto other = mock(other_options);
  const auto pixels = static_cast<std::size_t>(options.size * options.shape.elements());
  const std::vector<std::uint8_t> first(one.pixels(0), one.pixels(0) + pixels);
  EXPECT_EQ(first, std::vector<std::uint8_t>(two.pixels(0), two.pixels(0) + pixels));
  EXPECT_NE(first, std::vector<std::uint8_t>(other.pixels(0), other.pixels(0) + pixels));
  EXPECT_EQ(one.shape(), options.shape);
  for (std::int64_t i = 0; i < one.size(); ++i) EXPECT_LT(one.label(i), 7);
}

TEST(Mock, RefusesWhatCannotBe) {
  EXPECT_THROW(mock({.size = 0}), InvalidArgument);
  EXPECT_THROW(mock({.classes = 257}), InvalidArgument);
  EXPECT_THROW(mock({.shape = {.channels = 1, .height = 0, .width = 1}}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
