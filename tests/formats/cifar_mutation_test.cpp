#include <optional>

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/gzip.h"

#include "tests/formats/cifar_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/formats/largest_allocation.h"
#include "tests/formats/mutated.h"

namespace lockstep {
namespace {

using testing::Bytes;

constexpr int kMutations = 5'000;
constexpr std::size_t kMostAllocated = 256 * 1024;

std::optional<CifarImages> parse(const Bytes& bytes, CifarVariant variant) {
  testing::take_largest_allocation();
  std::optional<CifarImages> images(std::in_place);
  try {
    MemorySource compressed(bytes, "FILE");
    GunzipSource source(compressed);
    parse_cifar(source, variant, *images);
  } catch (const DataError&) {
    images.reset();
  }
  EXPECT_LE(testing::take_largest_allocation(), kMostAllocated);
  return images;
}

/// Reads by the letter of the format.
std::optional<CifarImages> reference(const Bytes& bytes, CifarVariant variant) {
  const std::size_t labels = variant == CifarVariant::kCifar10 ? 1 : 2;
  const std::size_t record = labels + 3072;
  if (bytes.empty() || bytes.size() % record != 0) return std::nullopt;
  CifarImages images;
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    if (labels == 2 && bytes[at] > 19) return std::nullopt;
    if (bytes[at + labels - 1] > (labels == 1 ? 9 : 99)) return std::nullopt;
    if (labels == 2) images.coarse_labels.push_back(bytes[at]);
    images.labels.push_back(bytes[at + labels - 1]);
    for (std::size_t i = 0; i < 3072; ++i) {
      images.pixels.push_back(bytes[at + labels + i % 3 * 1024 + i / 3]);
    }
  }
  return images;
}

void expect_equal(
    const std::optional<CifarImages>& got, const std::optional<CifarImages>& expected) {
  ASSERT_EQ(got.has_value(), expected.has_value());
  if (!got) return;
  EXPECT_EQ(got->labels, expected->labels);
  EXPECT_EQ(got->coarse_labels, expected->coarse_labels);
  EXPECT_TRUE(got->pixels == expected->pixels);
}

TEST(CifarMutation, FilesReadAsTheFormatSaysOrNotAtAll) {
  std::mt19937 engine(1);
  const Bytes ten = testing::joined(testing::cifar_record({7}), testing::cifar_record({3}));
  const Bytes hundred =
      testing::joined(testing::cifar_record({7, 70}), testing::cifar_record({3, 1}));
  int read = 0;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const auto variant = i % 2 == 0 ? CifarVariant::kCifar10 : CifarVariant::kCifar100;
    const Bytes bytes = testing::mutated(i % 4 < 2 ? ten : hundred, 2, engine);
    const auto expected = reference(bytes, variant);
    expect_equal(parse(bytes, variant), expected);
    read += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(read, kMutations / 20);
  EXPECT_LT(read, kMutations * 3 / 4);
}

TEST(CifarMutation, CompressedFilesReadAsBeforeOrNotAtAll) {
  std::mt19937 engine(2);
  const Bytes plain = testing::cifar_record({7, 70});
  const Bytes whole = testing::gzip(plain);
  const auto expected = reference(plain, CifarVariant::kCifar100);
  int read = 0;
  for (int i = 0; i < kMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    // A checksum guards the contents, so what is read at all is the original.
    if (const auto images = parse(testing::mutated(whole, 20, engine), CifarVariant::kCifar100)) {
      expect_equal(images, expected);
      ++read;
    }
  }
  EXPECT_GT(read, kMutations / 200);
}

}  // namespace
}  // namespace lockstep
