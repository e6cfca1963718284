#include "lockstep/formats/image/image_encoder.h"

#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::picture;

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

Image smooth(ImageSize size) {
  Image image = Image::of_size(size);
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width * 3; ++x) {
      image.row(y)[x] = static_cast<std::uint8_t>(x + y);
    }
  }
  return image;
}

TEST(ImageEncoder, PngGivesTheSamePixelsBack) {
  const Image colour = picture({31, 17});
  EXPECT_EQ(decode_image(encode_png(colour.view()), "FILE").pixels, colour.pixels);
  const Image with_alpha = picture({31, 17}, 4);
  EXPECT_EQ(decode_image(encode_png(with_alpha.view()), "FILE").pixels, colour.pixels);
  for (const std::int64_t channels : {1, 2}) {
    const Image grey = picture({31, 17}, channels);
    const Image read = decode_image(encode_png(grey.view()), "FILE");
    for (std::size_t pixel = 0; pixel < 31 * 17; ++pixel) {
      const auto value = grey.pixels[pixel * static_cast<std::size_t>(channels)];
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(read.pixels[pixel * 3 + c], value);
    }
  }
}

TEST(ImageEncoder, JpegGivesNearlyTheSamePixelsBack) {
  const Image image = smooth({60, 40});
  const JpegOptions best{.quality = 100, .horizontal_subsampling = 1, .vertical_subsampling = 1};
  EXPECT_LT(mean_difference(decode_image(encode_jpeg(image.view(), best), "FILE"), image), 1);
  EXPECT_LT(mean_difference(decode_image(encode_jpeg(image.view()), "FILE"), image), 5);
  const auto poor = encode_jpeg(image.view(), {.quality = 5});
  EXPECT_LT(poor.size(), encode_jpeg(image.view()).size());
  EXPECT_EQ(ImageReader(encode_jpeg(picture({9, 9}, 1).view()), "FILE").info().channels, 1);
}

TEST(ImageEncoder, JpegIsMadeAsAsked) {
  EXPECT_EQ(
      testing::jpeg({40, 40}, {.progressive = true})
          .at(testing::find_segment(testing::jpeg({40, 40}, {.progressive = true}), 0xc2) + 1),
      0xc2);
  const auto restarts = testing::jpeg({40, 40}, {.restart_rows = 1});
  EXPECT_EQ(restarts.at(testing::find_segment(restarts, 0xdd) + 1), 0xdd);
  const auto sampled =
      testing::jpeg({40, 40}, {.horizontal_subsampling = 4, .vertical_subsampling = 1});
  EXPECT_EQ(sampled.at(testing::find_segment(sampled, 0xc0) + 11), 0x41);
}

TEST(ImageEncoder, RefusesWhatTheFormatsCannotHold) {
  const Image image = picture({4, 4});
  EXPECT_THROW(encode_jpeg(picture({4, 4}, 4).view()), InvalidArgument);
  EXPECT_THROW(encode_jpeg(picture({4, 4}, 2).view()), InvalidArgument);
  EXPECT_THROW(encode_jpeg(image.view(), {.quality = 0}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(image.view(), {.quality = 101}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(image.view(), {.horizontal_subsampling = 3}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(image.view(), {.vertical_subsampling = 4}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(image.view(), {.restart_rows = -1}), InvalidArgument);
  EXPECT_THROW(encode_jpeg(Image::of_size({65'501, 1}).view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image::of_size({4, 4}, 5).view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image{{4, 4}, 3, {1, 2, 3}}.view()), InvalidArgument);
  EXPECT_THROW(encode_jpeg(Image{{4, 4}, 3, {1, 2, 3}}.view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image{{0, 0}, 3, {}}.view()), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
