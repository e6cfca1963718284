#include "lockstep/formats/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>

#include "tests/formats/cifar_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/formats/mutated.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::cifar_record;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::joined;
using testing::message_of;

constexpr CifarVariant k10 = CifarVariant::kCifar10;
constexpr CifarVariant k100 = CifarVariant::kCifar100;

CifarImages parse_records(
    const Bytes& bytes, CifarVariant variant, std::uint64_t maximum_bytes = kMaximumCifarBytes) {
  MemorySource source(bytes, "FILE");
  CifarImages images;
  parse_cifar(source, variant, images, maximum_bytes);
  return images;
}

std::string refusal(
    const Bytes& bytes, CifarVariant variant, std::uint64_t maximum_bytes = kMaximumCifarBytes) {
  return message_of<DataError>([&] { parse_records(bytes, variant, maximum_bytes); });
}

TEST(Cifar, GivesPixelsWithTheirChannelsTogether) {
  const auto images =
      parse_records(joined(cifar_record({7}, 10, 60), cifar_record({3}, 20, 70)), k10);
  EXPECT_THAT(images.labels, ElementsAre(7, 3));
  EXPECT_TRUE(images.coarse_labels.empty());
  ASSERT_EQ(images.pixels.size(), 2U * 32 * 32 * 3);
  for (std::size_t i = 0; i < 1024; ++i) {
    EXPECT_EQ(images.pixels[3 * i], static_cast<std::uint8_t>(10 + i));
    EXPECT_EQ(images.pixels[3 * i + 1], static_cast<std::uint8_t>(60 + 2 * i));
    EXPECT_EQ(images.pixels[3 * i + 2], static_cast<std::uint8_t>(200 + 3 * i));
    EXPECT_EQ(images.pixels[3072 + 3 * i], static_cast<std::uint8_t>(20 + i));
    EXPECT_EQ(images.pixels[3072 + 3 * i + 1], static_cast<std::uint8_t>(70 + 2 * i));
  }
}

TEST(Cifar, GivesBothLabelsOf100) {
  const auto images = parse_records(joined(cifar_record({19, 99}), cifar_record({0, 1})), k100);
  EXPECT_THAT(images.coarse_labels, ElementsAre(19, 0));
  EXPECT_THAT(images.labels, ElementsAre(99, 1));
  EXPECT_EQ(images.pixels[0], 0);
  EXPECT_EQ(images.pixels[1], 100);
}

TEST(Cifar, RefusesASizeThatIsNoMultipleOfARecord) {
  EXPECT_EQ(refusal({}, k10), "FILE: offset 0: the file is empty");
  const Bytes two = joined(cifar_record({1}), cifar_record({2}));
  EXPECT_EQ(refusal(testing::cut(two, two.size() - 1), k10),
      "FILE: offset 3073: the file ends inside a record: 6145 bytes are not a multiple of "
      "CIFAR-10's 3073; it was cut or is another file");
  EXPECT_THAT(refusal(joined(two, {0}), k10), HasSubstr("FILE: offset 6146: the file ends inside"));
  EXPECT_THAT(refusal({1}, k100), HasSubstr("not a multiple of CIFAR-100's 3074"));
}

TEST(Cifar, TellsTheOtherVariant) {
  EXPECT_EQ(refusal(joined(cifar_record({1, 2}), cifar_record({3, 4})), k10),
      "FILE: offset 0: the file has the size of 2 records of CIFAR-100, not of CIFAR-10; use the "
      "name of that set");
  EXPECT_EQ(refusal(cifar_record({1}), k100),
      "FILE: offset 0: the file has the size of 1 records of CIFAR-10, not of CIFAR-100; use the "
      "name of that set");
}

TEST(Cifar, RefusesLabelsOutOfRange) {
  for (const int label : {10, 11, 100, 255}) {
    const Bytes bytes = joined(cifar_record({9}), cifar_record({static_cast<std::uint8_t>(label)}));
    EXPECT_EQ(refusal(bytes, k10),
        concat("FILE: offset 3073: label out of range (>= 10) of image 1: ", label));
  }
  EXPECT_EQ(refusal(cifar_record({20, 99}), k100),
      "FILE: offset 0: coarse label out of range (>= 20) of image 0: 20");
  EXPECT_EQ(refusal(cifar_record({19, 100}), k100),
      "FILE: offset 1: label out of range (>= 100) of image 0: 100");
}

TEST(Cifar, StopsAtItsLimit) {
  const Bytes two = joined(cifar_record({1}), cifar_record({2}));
  EXPECT_EQ(parse_records(two, k10, two.size()).labels.size(), 2U);
  EXPECT_EQ(refusal(two, k10, two.size() - 1),
      "FILE: offset 6145: the file continues after the limit of 6145 bytes");
  EXPECT_THAT(refusal(two, k10, 0), HasSubstr("offset 0: the file continues"));
}

TEST(Cifar, ReadsSeveralFilesPlainOrCompressed) {
  const testing::TemporaryFolder directory;
  const std::vector<std::filesystem::path> files{directory.write("a.bin", cifar_record({1}, 5)),
      directory.write("b.bin", testing::gzip(cifar_record({2}, 6)))};
  const auto images = read_cifar(files, k10);
  EXPECT_THAT(images.labels, ElementsAre(1, 2));
  EXPECT_EQ(images.pixels[0], 5);
  EXPECT_EQ(images.pixels[3072], 6);
  EXPECT_THROW(read_cifar(files, k10, 2 * 3073 - 2), DataError);
  directory.write("b.bin", cifar_record({77}));
  EXPECT_THAT(message_of<DataError>([&] { read_cifar(files, k10); }),
      HasSubstr(files[1].string() + ": offset 0: label out of range"));
}

constexpr int kCifarMutations = 5'000;
constexpr std::size_t kMostForCifar = 256 * 1024;

std::optional<CifarImages> parse_if_sound(const Bytes& bytes, CifarVariant variant) {
  return testing::read_within(kMostForCifar, [&] {
    MemorySource compressed(bytes, "FILE");
    GunzipSource source(compressed);
    CifarImages images;
    parse_cifar(source, variant, images);
    return images;
  });
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
  const Bytes ten = joined(cifar_record({7}), cifar_record({3}));
  const Bytes hundred = joined(cifar_record({7, 70}), cifar_record({3, 1}));
  int read = 0;
  for (int i = 0; i < kCifarMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    const auto variant = i % 2 == 0 ? k10 : k100;
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
  const Bytes plain = cifar_record({7, 70});
  const Bytes whole = testing::gzip(plain);
  const auto expected = testing::reference_cifar(plain, k100);
  int read = 0;
  for (int i = 0; i < kCifarMutations && !HasFailure(); ++i) {
    SCOPED_TRACE(concat("mutation ", i));
    // A checksum guards the contents, so what is read at all is the original.
    if (const auto images = parse_if_sound(testing::mutated(whole, 20, engine), k100)) {
      expect_equal(images, expected);
      ++read;
    }
  }
  EXPECT_GT(read, kCifarMutations / 200);
}

}  // namespace

}  // namespace lockstep
