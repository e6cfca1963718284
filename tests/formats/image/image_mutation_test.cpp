#include <functional>
#include <gtest/gtest.h>
#include <optional>

#include "tests/formats/image/image_bytes.h"
#include "tests/formats/largest_allocation.h"
#include "tests/formats/mutated.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::Bytes;

constexpr int kMutations = 5'000;
constexpr std::size_t kHeader = 640;  // the tables of a JPEG file
constexpr std::size_t kSlack = 256 * 1024;

std::optional<Image> read(const std::function<Image()>& body) {
  try {
    return body();
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// Reads whole and in part, which must agree; memory is bounded by `most_per_byte` of the file.
bool is_read(const Bytes& bytes, std::size_t most_per_byte) {
  testing::take_largest_allocation();
  const auto whole = read([&] { return decode_image(bytes, "FILE"); });
  EXPECT_LE(testing::take_largest_allocation(), kSlack + most_per_byte * bytes.size());
  const auto part = read([&] {
    const ImageReader reader(bytes, "FILE");
    const auto [width, height] = reader.size();
    return reader.read({width / 3, height / 3, width - width / 2, height - height / 2});
  });
  if (!whole) return false;
  const auto [width, height] = whole->size;
  EXPECT_TRUE(part.has_value());
  if (!part) return true;
  EXPECT_TRUE(
      part->pixels ==
      crop(whole->view(), {width / 3, height / 3, width - width / 2, height - height / 2}).pixels);
  return true;
}

void expect_some_are_read(
    const std::vector<Bytes>& samples, std::size_t most_per_byte, double least) {
  std::mt19937 engine(1);
  int count = 0;
  for (int i = 0; i < kMutations && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const Bytes& sample = samples[static_cast<std::size_t>(i) % samples.size()];
    count += is_read(testing::mutated(sample, kHeader, engine), most_per_byte) ? 1 : 0;
  }
  EXPECT_GE(count, least * kMutations);  // otherwise only the first check would be tested
  EXPECT_LT(count, kMutations * 9 / 10);
}

TEST(ImageMutation, JpegFilesAreReadOrRefused) {
  const std::vector<Bytes> samples{testing::jpeg({40, 32}),
      testing::jpeg({40, 32}, {.horizontal_subsampling = 1, .vertical_subsampling = 1}),
      testing::jpeg({40, 32}, {.progressive = true}), testing::jpeg({40, 32}, {.restart_rows = 1}),
      encode_jpeg(testing::picture({40, 32}, 1).view())};
  // One bit a block of 64 pixels of 3 bytes.
  expect_some_are_read(samples, 8 * 64 * 3, 0.1);
}

TEST(ImageMutation, PngFilesAreReadOrRefused) {
  const std::vector<Bytes> samples{testing::png({20, 16}), testing::png({20, 16}, 1)};
  // Deflate's best ratio, of one bit a pixel of 3 bytes.
  expect_some_are_read(samples, 1032 * 8 * 3, 0.05);
}

TEST(ImageMutation, PngFilesWithTrueChecksumsAreReadOrRefused) {
  std::mt19937 engine(2);
  Bytes palette;
  for (int i = 0; i < 48; ++i) palette.push_back(static_cast<std::uint8_t>(5 * i));
  const Bytes indexed = testing::png_file(
      testing::png_header(8, 6, 4, 3), testing::chunk("PLTE", palette), Bytes(5 * 6, 0));
  const Bytes interlaced = testing::png_file(testing::png_header(5, 1, 8, 0, 1), {}, Bytes(4 + 5));
  const std::vector<Bytes> samples{testing::png({20, 16}), indexed, interlaced};
  int count = 0;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const Bytes& sample = samples[static_cast<std::size_t>(i) % samples.size()];
    const Bytes bytes = testing::with_true_checksums(testing::mutated(sample, 60, engine));
    count += is_read(bytes, 1032 * 8 * 3) ? 1 : 0;
  }
  EXPECT_GT(count, kMutations / 20);
  EXPECT_LT(count, kMutations * 9 / 10);
}

}  // namespace
}  // namespace lockstep
