#include <gtest/gtest.h>
#include <random>

#include "tests/formats/idx_bytes.h"
#include "tests/formats/idx_reference.h"
#include "tests/formats/largest_allocation.h"
#include "tests/formats/mutated.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/gzip.h"

namespace lockstep {
namespace {

using testing::Bytes;

constexpr int kIdxMutations = 20'000;
// The buffers of gzip and of the first piece are 64 KiB; small files must never ask for much more.
constexpr std::size_t kMostForIdx = 256 * 1024;

Bytes sample_idx() {
  Bytes values(2 * 3 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
  return testing::idx_bytes({2, 3, 5}, values);
}

std::optional<IdxArray> parse_if_sound(const Bytes& bytes) {
  testing::take_largest_allocation();
  std::optional<IdxArray> array;
  try {
    MemorySource compressed(bytes, "FILE");
    GunzipSource source(compressed);
    array = parse_idx(source, 3);
  } catch (const DataError&) {
  }
  EXPECT_LE(testing::take_largest_allocation(), kMostForIdx);
  return array;
}

void expect_equal(const std::optional<IdxArray>& got, const std::optional<IdxArray>& expected) {
  ASSERT_EQ(got.has_value(), expected.has_value());
  if (!got) return;
  EXPECT_EQ(got->shape, expected->shape);
  EXPECT_EQ(got->values, expected->values);
}

// The header and the first values.
constexpr std::size_t kFront = 20;

TEST(IdxMutation, PlainFilesReadAsTheFormatSaysOrNotAtAll) {
  std::mt19937 engine(1);
  int read = 0;
  for (int i = 0; i < kIdxMutations && !HasFailure(); ++i) {
    const auto bytes = testing::mutated(sample_idx(), kFront, engine);
    const auto expected = testing::reference_idx(bytes, 3);
    SCOPED_TRACE(concat("mutation ", i));
    expect_equal(parse_if_sound(bytes), expected);
    read += expected.has_value() ? 1 : 0;
  }
  EXPECT_GT(
      read, kIdxMutations / 20);  // otherwise the mutations would test nothing but the first check
  EXPECT_LT(read, kIdxMutations * 3 / 4);
}

TEST(IdxMutation, CompressedFilesReadAsBeforeOrNotAtAll) {
  std::mt19937 engine(2);
  const auto whole = testing::gzip(sample_idx());
  const auto expected = testing::reference_idx(sample_idx(), 3);
  int read = 0;
  for (int i = 0; i < kIdxMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    // A checksum guards the values, so what is read at all is the original.
    if (const auto array = parse_if_sound(testing::mutated(whole, kFront, engine))) {
      expect_equal(array, expected);
      ++read;
    }
  }
  EXPECT_GT(read, kIdxMutations / 200);
}

TEST(IdxMutation, CompressedFilesWithWrongContentsReadAsTheFormatSays) {
  std::mt19937 engine(3);
  for (int i = 0; i < kIdxMutations / 4 && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const auto bytes = testing::mutated(sample_idx(), kFront, engine);
    expect_equal(parse_if_sound(testing::gzip(bytes)), testing::reference_idx(bytes, 3));
  }
}

TEST(IdxMutation, AHeaderThatPromisesMuchIsNotBelieved) {
  for (const std::uint32_t count : {100'000U, 1'000'000U, 0x3fffffffU}) {
    EXPECT_FALSE(parse_if_sound(testing::idx_bytes({count, 1, 1}, Bytes(100)))) << count;
  }
}

}  // namespace
}  // namespace lockstep
