#include "lockstep/formats/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "tests/formats/idx_bytes.h"
#include "tests/formats/mutated.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::message_of;

IdxArray parse_bytes(
    const Bytes& bytes, int dimensions, std::uint64_t maximum_bytes = kMaximumIdxBytes) {
  MemorySource source(bytes, "FILE");
  return parse_idx(source, dimensions, maximum_bytes);
}

std::string refusal(
    const Bytes& bytes, int dimensions, std::uint64_t maximum_bytes = kMaximumIdxBytes) {
  return message_of<DataError>([&] { parse_bytes(bytes, dimensions, maximum_bytes); });
}

TEST(Idx, GivesShapeAndValues) {
  const auto array = parse_bytes(idx_bytes({2, 1, 3}, {1, 2, 3, 4, 5, 255}), 3);
  EXPECT_THAT(array.shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(array.values, ElementsAre(1, 2, 3, 4, 5, 255));
}

TEST(Idx, ReadsMoreThanOnePiece) {
  Bytes values(300'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  const auto array = parse_bytes(idx_bytes({300, 1000}, values), 2);
  EXPECT_THAT(array.shape, ElementsAre(300, 1000));
  EXPECT_EQ(array.values, values);
}

TEST(Idx, RefusesAWrongMagic) {
  EXPECT_EQ(refusal({1, 0, 8, 1, 0, 0, 0, 0}, 1),
      "FILE: offset 0: no IDX file: the first byte is 1, not 0");
  EXPECT_EQ(refusal({0, 9, 8, 1, 0, 0, 0, 0}, 1),
      "FILE: offset 1: no IDX file: the second byte is 9, not 0");
}

TEST(Idx, RefusesEveryTypeButUnsignedBytes) {
  for (int type = 0; type < 256; ++type) {
    if (type == 8) continue;
    const Bytes bytes{0, 0, static_cast<std::uint8_t>(type), 1, 0, 0, 0, 1, 5};
    EXPECT_THAT(refusal(bytes, 1), HasSubstr("FILE: offset 2: the type of the values is")) << type;
  }
}

TEST(Idx, RefusesOtherNumbersOfDimensions) {
  for (const std::size_t dimensions : {0U, 1U, 2U, 4U, 255U}) {
    const auto bytes = idx_bytes(std::vector<std::uint32_t>(dimensions, 1), {1});
    EXPECT_THAT(refusal(bytes, 3), HasSubstr("FILE: offset 3: the file has")) << dimensions;
  }
  EXPECT_THROW(parse_bytes({}, 0), InvalidArgument);
  EXPECT_THROW(parse_bytes({}, 256), InvalidArgument);
}

TEST(Idx, RefusesCountsThatLie) {
  const Bytes values(6, 1);
  EXPECT_EQ(refusal(idx_bytes({7}, values), 1),
      "FILE: offset 14: the file ends after 6 of the 7 values that its header promises");
  EXPECT_EQ(refusal(idx_bytes({5}, values), 1),
      "FILE: offset 13: the file continues after the 5 values that its header promises");
  EXPECT_THAT(
      refusal(idx_bytes({2, 0, 3}, values), 3), HasSubstr("FILE: offset 8: a dimension counts 0"));
}

TEST(Idx, RefusesProductsThatOverflow) {
  constexpr std::uint32_t kMost = 0xffffffff;
  EXPECT_THAT(refusal(idx_bytes({kMost, kMost, kMost}, {1}), 3),
      HasSubstr("FILE: offset 4: the counts promise more"));
  // 2^32 times 2^32 is 0 in 64 bits.
  EXPECT_THAT(
      refusal(idx_bytes({1U << 31, 1U << 31, 4}, {1}), 3), HasSubstr("the counts promise more"));
  EXPECT_THAT(refusal(idx_bytes({3, 4}, Bytes(12)), 2, 11),
      HasSubstr("FILE: offset 8: the counts promise more than the limit of 11"));
  EXPECT_EQ(parse_bytes(idx_bytes({3, 4}, Bytes(12)), 2, 12).values.size(), 12U);
}

TEST(Idx, RefusesTruncationAtEveryByte) {
  const auto whole = idx_bytes({2, 2, 3}, Bytes(12, 9));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(
        refusal(testing::cut(whole, size), 3), HasSubstr(concat("FILE: offset ", size, ": ")));
  }
}

class LabelledImagesTest : public ::testing::Test {
 protected:
  std::string refusal(const Bytes& images, const Bytes& labels) const {
    return message_of<DataError>([&] { read(images, labels); });
  }

  LabelledImages read(const Bytes& images, const Bytes& labels) const {
    return read_labelled_images(
        directory_.write("images", images), directory_.write("labels", labels), 10);
  }

  std::string path(const char* name) const { return (directory_.path() / name).string(); }

 private:
  testing::TemporaryFolder directory_;
};

TEST_F(LabelledImagesTest, JoinsImagesAndLabels) {
  const auto set =
      read(idx_bytes({2, 1, 3}, {1, 2, 3, 4, 5, 6}), testing::gzip(idx_bytes({2}, {0, 9})));
  EXPECT_EQ(set.rows, 1U);
  EXPECT_EQ(set.columns, 3U);
  EXPECT_THAT(set.pixels, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(set.labels, ElementsAre(0, 9));
}

TEST_F(LabelledImagesTest, RefusesCountsThatDiffer) {
  const auto message = refusal(idx_bytes({2, 1, 1}, {1, 2}), idx_bytes({3}, {0, 1, 2}));
  EXPECT_EQ(message, path("labels") + ": offset 4: image and label counts differ: 2 images in " +
                         path("images") + ", 3 labels");
}

TEST_F(LabelledImagesTest, RefusesALabelOutOfRange) {
  for (const int label : {10, 11, 255}) {
    const auto labels = idx_bytes({3}, {0, static_cast<std::uint8_t>(label), 99});
    EXPECT_EQ(refusal(idx_bytes({3, 1, 1}, {1, 2, 3}), labels),
        concat(path("labels"), ": offset 9: label out of range (>= 10) at index 1: ", label));
  }
}

TEST_F(LabelledImagesTest, RefusesFilesThatChangedPlaces) {
  EXPECT_THAT(refusal(idx_bytes({2}, {0, 1}), idx_bytes({2, 1, 1}, {1, 2})),
      HasSubstr(path("images") + ": offset 3: the file has 1 dimensions"));
}

constexpr int kIdxMutations = 20'000;
// The buffers of gzip and of the first piece are 64 KiB; small files must never ask for much more.
constexpr std::size_t kMostForIdx = 256 * 1024;

Bytes sample_idx() {
  Bytes values(2 * 3 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
  return testing::idx_bytes({2, 3, 5}, values);
}

std::optional<IdxArray> parse_if_sound(const Bytes& bytes) {
  return testing::read_within(kMostForIdx, [&] {
    MemorySource compressed(bytes, "FILE");
    GunzipSource source(compressed);
    return parse_idx(source, 3);
  });
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
