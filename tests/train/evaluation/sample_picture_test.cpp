#include "lockstep/train/evaluation/sample_picture.h"

#include <gtest/gtest.h>
#include <utility>

#include "lockstep/data/image_samples.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

data::InMemoryImages images_of(const data::ImageShape& shape, std::vector<std::uint8_t> pixels) {
  return data::InMemoryImages(
      {.name = "some", .shape = shape, .classes = 2, .pixels = std::move(pixels), .labels = {1}});
}

Image decoded(const std::vector<std::uint8_t>& png) { return decode_image(png, "picture"); }

std::vector<std::uint8_t> all_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 % 256);
  return bytes;
}

TEST(SamplePicture, HasThePixelsOfTheSetWhateverItsNormalization) {
  const auto pixels = all_bytes(16 * 16 * 3);
  const data::Normalization usual{{0.49F, 0.48F, 0.45F}, {0.25F, 0.24F, 0.26F}};
  for (const auto& normalization : {data::Normalization(), usual}) {
    const data::StoredSamples set(
        images_of({.channels = 3, .height = 16, .width = 16}, pixels), normalization);
    const Image image = decoded(sample_picture(set, 0, normalization));
    EXPECT_EQ(image.size, (ImageSize{16, 16}));
    EXPECT_EQ(image.pixels, pixels);
  }
}

TEST(SamplePicture, AGreyImageStaysGrey) {
  const auto pixels = all_bytes(4 * 6);
  const data::StoredSamples set(images_of({.channels = 1, .height = 4, .width = 6}, pixels));
  const Image image = decoded(sample_picture(set, 0, {}));
  EXPECT_EQ(image.size, (ImageSize{6, 4}));
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_EQ(image.pixels[3 * i], pixels[i]);
}

TEST(SamplePicture, NumbersBeyondPixelsAreSpread) {
  // A std of 1/255 makes the pixels 10, 20 and 30 into these numbers.
  const data::Normalization numbers{.mean = {0}, .std = {1.0F / 255}};
  const data::StoredSamples set(
      images_of({.channels = 1, .height = 1, .width = 3}, {10, 20, 30}), numbers);
  const Image image = decoded(sample_picture(set, 0, {}));
  EXPECT_EQ(image.pixels[0], 0);
  EXPECT_NEAR(image.pixels[3], 127.5, 1);
  EXPECT_EQ(image.pixels[6], 255);
}

TEST(SamplePicture, ALargeOneIsScaledDown) {
  const data::StoredSamples set(images_of(
      {.channels = 1, .height = 300, .width = 600}, std::vector<std::uint8_t>(300 * 600, 77)));
  const Image image = decoded(sample_picture(set, 0, {}));
  EXPECT_EQ(image.size, (ImageSize{256, 128}));
  EXPECT_EQ(image.pixels.front(), 77);
}

}  // namespace
}  // namespace lockstep
