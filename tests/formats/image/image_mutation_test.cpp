#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"
#include "tests/formats/mutated.h"
#include "tests/support/message_of.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::append;
using testing::Bytes;
using ::testing::HasSubstr;

constexpr int kMutations = 5'000;
constexpr std::size_t kSlack = 256 * 1024;

/// Reads whole and in part, which must agree; memory is bounded by `most_per_byte` of the file.
bool is_read(const Bytes& bytes, std::size_t most_per_byte) {
  const std::size_t most = kSlack + most_per_byte * bytes.size();
  const auto inner = [](const ImageSize& size) {
    return Box{size.width / 3, size.height / 3, size.width - size.width / 2,
        size.height - size.height / 2};
  };
  const auto whole = testing::read_within(most, [&] { return decode_image(bytes, "FILE"); });
  const auto part = testing::read_within(most, [&] {
    const ImageReader reader(bytes, "FILE");
    return reader.read(inner(reader.size()));
  });
  if (!whole) return false;
  EXPECT_TRUE(part && part->pixels == crop(whole->view(), inner(whole->size)).pixels);
  return true;
}

/// Reads mutations of the samples, made sound behind their checksums by `mended`.
void expect_some_are_read(const std::vector<Bytes>& samples, std::size_t front, unsigned seed,
    std::size_t most_per_byte, double least, Bytes (*mended)(Bytes)) {
  std::mt19937 engine(seed);
  int count = 0;
  for (int i = 0; i < kMutations && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const Bytes& sample = samples[static_cast<std::size_t>(i) % samples.size()];
    count += is_read(mended(testing::mutated(sample, front, engine)), most_per_byte) ? 1 : 0;
  }
  EXPECT_GE(count, least * kMutations);  // otherwise only the first check would be tested
  EXPECT_LT(count, kMutations * 9 / 10);
}

TEST(ImageMutation, JpegFilesAreReadOrRefused) {
  constexpr std::size_t kTables = 640;
  const std::vector<Bytes> samples{testing::jpeg({40, 32}),
      testing::jpeg({40, 32}, {.horizontal_subsampling = 1, .vertical_subsampling = 1}),
      testing::jpeg({40, 32}, {.progressive = true}), testing::jpeg({40, 32}, {.restart_rows = 1}),
      encode_jpeg(testing::picture({40, 32}, 1).view())};
  // One bit a block of 64 pixels of 3 bytes.
  expect_some_are_read(samples, kTables, 1, 8 * 64 * 3, 0.1, [](Bytes bytes) { return bytes; });
}

TEST(ImageMutation, PngFilesWithTrueChecksumsAreReadOrRefused) {
  Bytes palette;
  for (int i = 0; i < 48; ++i) palette.push_back(static_cast<std::uint8_t>(5 * i));
  const Bytes indexed = testing::png_file(
      testing::png_header(8, 6, 4, 3), testing::chunk("PLTE", palette), Bytes(5 * 6, 0));
  const Bytes interlaced = testing::png_file(testing::png_header(5, 1, 8, 0, 1), {}, Bytes(4 + 5));
  // Deflate's best ratio, of one bit a pixel of 3 bytes.
  expect_some_are_read({testing::png({20, 16}), indexed, interlaced}, 60, 2, 1032 * 8 * 3, 0.05,
      testing::with_true_checksums);
}

std::string bomb_refusal(const Bytes& bytes) {
  testing::take_largest_allocation();
  const std::string message = testing::message_of<DataError>([&] { decode_image(bytes, "FILE"); });
  EXPECT_LE(testing::take_largest_allocation(), kSlack);
  return message;
}

/// Makes a file of nothing but a frame and the beginning of a scan.
Bytes tiny_jpeg(int marker, std::uint32_t width, std::uint32_t height) {
  Bytes bytes{0xff, 0xd8};
  append(bytes, testing::jpeg_frame(marker, width, height));
  append(bytes, testing::segment(0xda, {3, 1, 0, 2, 0, 3, 0, 0, 63, 0}));
  append(bytes, {0, 0xff, 0xd9});
  return bytes;
}

// Small files that ask for much memory: refused before they get it.
TEST(ImageBomb, JpegWithTheLargestSidesIsRefused) {
  EXPECT_THAT(
      bomb_refusal(tiny_jpeg(0xc2, 65'000, 65'000)), HasSubstr("has a side above the limit"));
  EXPECT_THAT(
      bomb_refusal(tiny_jpeg(0xc2, 16'384, 16'384)), HasSubstr("has more pixels than the limit"));
}

TEST(ImageBomb, JpegTooShortForItsBlocksIsRefused) {
  for (const int marker : {0xc0, 0xc1, 0xc2}) {
    EXPECT_EQ(bomb_refusal(tiny_jpeg(marker, 8192, 8192)),
        "FILE: offset 21: the file ends too early: 15 bytes cannot hold an image of 8192 x 8192 "
        "pixels");
  }
  // One bit a block is the least: 15 bytes hold 120 blocks.
  EXPECT_THAT(bomb_refusal(tiny_jpeg(0xc0, 120 * 8 + 1, 8)), HasSubstr("cannot hold"));
  EXPECT_THAT(bomb_refusal(tiny_jpeg(0xc0, 120 * 8, 8)), HasSubstr("damaged or cut"));
  EXPECT_THAT(bomb_refusal(tiny_jpeg(0xc0, 8, 120 * 8 + 1)), HasSubstr("cannot hold"));
}

TEST(ImageBomb, JpegIsMeasuredByItsLargestComponent) {
  // The first has all columns and half of the rows, the second a quarter of the columns, all rows.
  const auto file = [](std::uint32_t width) {
    Bytes bytes = tiny_jpeg(0xc0, width, 16);
    bytes[13] = 0x41;
    bytes[16] = 0x12;
    return bytes;
  };
  EXPECT_THAT(bomb_refusal(file(120 * 8)), HasSubstr("damaged or cut"));
  EXPECT_THAT(bomb_refusal(file(120 * 8 + 1)), HasSubstr("cannot hold"));
}

TEST(ImageBomb, PngTooShortForItsPixelsIsRefused) {
  const Bytes bytes = testing::png_file(testing::png_header(8192, 8192), {}, Bytes(100));
  EXPECT_THAT(bomb_refusal(bytes), HasSubstr("FILE: offset 8: the IDAT chunks are too short: "));
  EXPECT_THAT(bomb_refusal(bytes), HasSubstr("bytes cannot hold an image of 8192 x 8192 pixels"));
}

TEST(ImageBomb, PngIsMeasuredByDeflatesBestRatio) {
  // A row of 1031 grey pixels and its filter: 1032 bytes, which take one byte at least.
  const auto file = [](std::uint32_t rows) {
    return testing::png_of_chunks({testing::png_header(1031, rows, 8, 0),
        testing::chunk("IDAT", Bytes(40)), testing::chunk("IEND", {})});
  };
  EXPECT_THAT(bomb_refusal(file(40)), HasSubstr("the PNG image is damaged"));
  EXPECT_THAT(
      bomb_refusal(file(41)), HasSubstr("40 bytes cannot hold an image of 1031 x 41 pixels"));
}

TEST(ImageBomb, PngWithTheBestRatioIsSound) {
  constexpr std::uint32_t kSide = 2048;
  const Bytes rows(std::size_t{kSide} * (kSide + 1), 0);
  const Bytes bytes = testing::png_file(testing::png_header(kSide, kSide, 8, 0), {}, rows);
  EXPECT_LT(bytes.size(), rows.size() / 900);
  EXPECT_EQ(decode_image(bytes, "FILE").size, (ImageSize{kSide, kSide}));
}

TEST(ImageBomb, WhatDescribesTheImageGetsNoMemory) {
  Bytes jpeg = testing::jpeg({24, 16});
  Bytes profile = testing::bytes_of(std::string("ICC_PROFILE\0\1\1", 14));
  profile.resize(65'533);
  for (int i = 0; i < 100; ++i) jpeg = testing::with_segment(jpeg, 0xe2, profile);
  Bytes exif = testing::exif_segment_content(testing::exif(1));
  exif.resize(65'533);
  for (int i = 0; i < 20; ++i) jpeg = testing::with_segment(jpeg, 0xe1, exif);
  EXPECT_GT(jpeg.size(), 7'000'000U);
  const Bytes profiled = testing::with_chunk(testing::png({24, 16}), "iCCP", Bytes(9'000'000));
  testing::take_largest_allocation();
  EXPECT_NO_THROW(decode_image(jpeg, "FILE"));
  EXPECT_NO_THROW(decode_image(profiled, "FILE"));
  EXPECT_LE(testing::take_largest_allocation(), kSlack);
}

}  // namespace
}  // namespace lockstep
