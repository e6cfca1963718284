#include <optional>

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/gzip.h"

#include "tests/formats/cifar_bytes.h"
#include "tests/formats/cifar_reference.h"
#include "tests/formats/idx_bytes.h"
#include "tests/formats/largest_allocation.h"
#include "tests/formats/mutated.h"

namespace lockstep {
namespace {

using testing::Bytes;

constexpr int kCifarMutations = 5'000;
constexpr std::size_t kMostForCifar = 256 * 1024;

std::optional<CifarImages> parse_if_sound(const Bytes& bytes, CifarVariant variant) {
  testing::take_largest_allocation();
  std::optional<CifarImages> images(std::in_place);
  try {
    MemorySource compressed(bytes, "FILE");
    GunzipSource source(compressed);
    parse_cifar(source, variant, *images);
  } catch (const DataError&) {
    images.reset();
  }
  EXPECT_LE(testing::take_largest_allocation(), kMostForCifar);
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
  for (int i = 0; i < kCifarMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const auto variant = i % 2 == 0 ? CifarVariant::kCifar10 : CifarVariant::kCifar100;
    const Bytes bytes = testing::mutated(i % 4 < 2 ? ten : hundred, 2, engine);
    const auto expected = testing::reference_cifar(bytes, variant);
    expect_equal(parse_if_sound(bytes, variant), expected);
    read += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(read, kCifarMutations / 20);
  EXPECT_LT(read, kCifarMutations * 3 / 4);
}

TEST(CifarMutation, CompressedFilesReadAsBeforeOrNotAtAll) {
  std::mt19937 engine(2);
  const Bytes plain = testing::cifar_record({7, 70});
  const Bytes whole = testing::gzip(plain);
  const auto expected = testing::reference_cifar(plain, CifarVariant::kCifar100);
  int read = 0;
  for (int i = 0; i < kCifarMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    // A checksum guards the contents, so what is read at all is the original.
    if (const auto images =
            parse_if_sound(testing::mutated(whole, 20, engine), CifarVariant::kCifar100)) {
      expect_equal(images, expected);
      ++read;
    }
  }
  EXPECT_GT(read, kCifarMutations / 200);
}

}  // namespace
}  // namespace lockstep
