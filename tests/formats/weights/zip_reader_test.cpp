#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/idx_bytes.h"
#include "tests/formats/mutated.h"
#include "tests/formats/weights/torch_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::checksum_of;
using ::testing::HasSubstr;
using testing::numbers;
using testing::zip_bytes;
using testing::ZipPart;

constexpr std::uint16_t kDescriptor = 8;

std::string zip_flaw(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { read_zip(bytes, "FILE"); });
}

std::string zip_flaw(const ZipPart& part) { return zip_flaw(zip_bytes({part})); }

std::string text_of(const ZipEntry& entry) { return {entry.bytes.begin(), entry.bytes.end()}; }

/// Makes a file whose sizes and checksum stand behind its bytes, as PyTorch writes all.
ZipPart described(
    const std::string& name, const std::string& content, bool has_signature, int width) {
  std::string descriptor = has_signature ? numbers(4, {0x08074b50}) : "";
  descriptor +=
      numbers(4, {checksum_of(content)}) + numbers(width, {content.size(), content.size()});
  return {.name = name,
      .content = content,
      .flags = kDescriptor,
      .local_size = 0,
      .descriptor = descriptor};
}

TEST(ZipReader, GivesNamesAndBytes) {
  for (const bool is_wide : {false, true}) {
    const auto bytes =
        zip_bytes({{.name = "x/a", .content = "one"}, {.name = "x/b", .content = ""}}, is_wide);
    const auto entries = read_zip(bytes, "FILE");
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0].name, "x/a");
    EXPECT_EQ(text_of(entries[0]), "one");
    EXPECT_EQ(entries[0].offset, 33U);
    EXPECT_EQ(text_of(entries[1]), "");
  }
  EXPECT_TRUE(read_zip(zip_bytes({}), "FILE").empty());
}

TEST(ZipReader, ReadsDescriptorsOfAllFourForms) {
  for (const bool has_signature : {false, true}) {
    for (const int width : {4, 8}) {
      const auto part = described("a", "content", has_signature, width);
      EXPECT_EQ(text_of(read_zip(zip_bytes({part, {.name = "b"}}), "FILE")[0]), "content");
      for (std::size_t i = 0; i < part.descriptor.size(); ++i) {
        ZipPart damaged = part;
        damaged.descriptor[i] = static_cast<char>(damaged.descriptor[i] ^ 1);
        EXPECT_THAT(zip_flaw(damaged), HasSubstr("bytes behind it are not what")) << i;
      }
    }
  }
  ZipPart missing = described("a", "content", true, 4);
  missing.descriptor.clear();
  EXPECT_THAT(zip_flaw(missing), HasSubstr("FILE: offset 38: \"a\": the 0 bytes behind it"));
  const ZipPart superfluous{.name = "a", .content = "content", .descriptor = "x"};
  EXPECT_THAT(zip_flaw(superfluous), HasSubstr("the 1 bytes behind it are not what"));
}

TEST(ZipReader, Reads64BitFields) {
  const std::string content = "content";
  ZipPart part{.name = "a",
      .content = content,
      .size = 0xffffffff,
      .header = 0xffffffff,
      .local_size = 0xffffffff};
  part.extra = numbers(2, {7, 1}) + "x" + numbers(2, {1, 24}) + numbers(8, {7, 7, 0});
  EXPECT_EQ(text_of(read_zip(zip_bytes({part}, true), "FILE")[0]), content);
  for (const auto& [extra, reason] : {std::pair(numbers(2, {1, 24}) + numbers(8, {7, 8, 0}),
                                          "\"a\" has 7 bytes, of which 8 are stored"),
           {numbers(2, {1, 24}) + numbers(8, {1ULL << 62, 1ULL << 62, 0}),
               "4611686018427387904 bytes reach into what follows"},
           {numbers(2, {1, 24}) + numbers(8, {7, 7, ~0ULL}), "belong to no file of the archive"},
           {numbers(2, {1, 8}) + numbers(8, {7}), "has 7 bytes, of which 4294967295 are stored"},
           {numbers(2, {1, 24}) + numbers(8, {7}), "the file ends within a record"}}) {
    part.extra = extra;
    EXPECT_THAT(zip_flaw(part), HasSubstr(reason));
  }
}

TEST(ZipReader, RefusesAWrongChecksum) {
  const ZipPart part{.name = "x/a", .content = "one", .checksum = checksum_of("one") ^ 1};
  EXPECT_EQ(zip_flaw(part),
      "FILE: offset 33: \"x/a\": the checksum of its 3 bytes is not the stored one: the file is "
      "damaged");
}

TEST(ZipReader, LeavesCompressedFilesAsTheyAre) {
  const auto bytes = zip_bytes({{.name = "a", .content = "x", .method = 8, .checksum = 1}});
  const auto entries = read_zip(bytes, "FILE");
  EXPECT_EQ(entries.at(0).method, 8);
  EXPECT_EQ(text_of(entries.at(0)), "x");
}

TEST(ZipReader, RefusesEncryptedFiles) {
  for (int bit = 0; bit < 16; ++bit) {
    if (bit == 3 || bit == 11) continue;  // a descriptor, and names in UTF-8
    EXPECT_THAT(
        zip_flaw({.name = "a", .content = "x", .flags = static_cast<std::uint16_t>(1 << bit)}),
        HasSubstr("\"a\" is encrypted, split or of a kind that is not read"));
  }
}

TEST(ZipReader, RefusesNamesThatLeaveTheArchive) {
  for (const char* name : {"../a", "x/../a", "x/..", "..", "/a", "x\\a", ""}) {
    EXPECT_THAT(zip_flaw({.name = name}), HasSubstr("which could leave it")) << name;
  }
  EXPECT_THAT(
      zip_flaw({.name = "x/a\xff"}), HasSubstr("the zip archive's name \"x/a\\xff\" is not UTF-8"));
  EXPECT_THAT(zip_flaw({.name = std::string("a\0b", 3)}), HasSubstr("is not UTF-8"));
  EXPECT_NO_THROW(read_zip(zip_bytes({{.name = "x/..a"}}), "FILE"));
}

TEST(ZipReader, RefusesDuplicateAndOverlappingFiles) {
  const ZipPart part{.name = "a", .content = "one"};
  EXPECT_THAT(zip_flaw(zip_bytes({part, part})), HasSubstr("\"a\" is there twice"));
  // Two names for the same bytes: how a small archive unpacks to a huge one.
  EXPECT_THAT(zip_flaw(zip_bytes({part, {.name = "b", .content = "one", .header = 0}})),
      HasSubstr("two files of the zip archive lie at the same place"));
  const ZipPart inner{.name = "b", .content = "two"};
  const auto bytes = zip_bytes({inner});
  const std::string nested(bytes.begin(), bytes.begin() + 34);
  ZipPart outer{.name = "a", .content = nested};
  ZipPart within = inner;
  within.header = 31;
  EXPECT_THAT(zip_flaw(zip_bytes({outer, within})),
      HasSubstr("\"a\": its 34 bytes reach into what follows at 31"));
  EXPECT_THAT(zip_flaw({.name = "a", .content = "one", .size = 4, .local_size = 4}),
      HasSubstr("reach into what follows"));
  EXPECT_THAT(zip_flaw({.name = "a", .content = "one", .size = 2, .local_size = 2}),
      HasSubstr("the 1 bytes behind it"));
}

TEST(ZipReader, RefusesHeadersThatContradictTheDirectory) {
  const auto contradiction = HasSubstr("its own header is not what the zip directory says");
  EXPECT_THAT(zip_flaw({.name = "a", .content = "x", .local_name = "b"}), contradiction);
  EXPECT_THAT(zip_flaw({.name = "a", .content = "x", .local_size = 0}), contradiction);
  auto bytes = zip_bytes({{.name = "a", .content = "x"}});
  for (const std::size_t field : {0U, 6U, 8U, 14U, 18U, 22U, 26U}) {
    auto damaged = bytes;
    damaged[field] ^= 1;
    EXPECT_NE(zip_flaw(damaged), "") << field;
  }
}

TEST(ZipReader, RefusesBytesThatBelongToNoFile) {
  auto bytes = zip_bytes({{.name = "a", .content = "x"}});
  bytes.insert(bytes.begin(), 0);
  EXPECT_THAT(zip_flaw(bytes), HasSubstr("directory does not lie before its end"));
  EXPECT_THAT(zip_flaw({.name = "a", .content = "x", .header = 1}),
      HasSubstr("the first 1 bytes belong to no file"));
}

TEST(ZipReader, RefusesEndsThatLie) {
  const std::vector<ZipPart> parts{{.name = "a", .content = "x"}, {.name = "b", .content = "y"}};
  const auto narrow = zip_bytes(parts);
  const std::size_t end = narrow.size() - 22;
  const auto damaged = [&](std::size_t field, std::uint8_t value) {
    auto bytes = narrow;
    bytes[end + field] = value;
    return zip_flaw(bytes);
  };
  for (const auto& [field, value, reason] :
      std::vector<std::tuple<std::size_t, std::uint8_t, std::string>>{
          {0, 0, "no zip archive's end: the file was cut or continues behind it"},
          {4, 1, "is split over several files"}, {6, 1, "is split over several files"},
          {8, 1, "is split over several files"}, {12, 0, "directory does not lie before its end"},
          {16, 0, "directory does not lie before its end"}, {20, 1, "ends with a comment"}})
    EXPECT_THAT(damaged(field, value), HasSubstr(reason)) << field;
  auto fewer = narrow;
  fewer[end + 8] = fewer[end + 10] = 1;
  EXPECT_THAT(zip_flaw(fewer), HasSubstr("the zip directory continues after its 1 files"));
  fewer[end + 8] = fewer[end + 10] = 3;
  EXPECT_THAT(zip_flaw(fewer), HasSubstr("has no 3 files"));
  auto longer = narrow;
  longer.push_back(0);
  EXPECT_THAT(zip_flaw(longer), HasSubstr("no zip archive's end"));
}

TEST(ZipReader, Refuses64BitEndsThatLie) {
  const auto wide = zip_bytes({{.name = "a", .content = "x"}}, true);
  const std::size_t end64 = wide.size() - 22 - 20 - 56;
  const auto damaged = [&](std::size_t field) {
    auto bytes = wide;
    bytes[end64 + field] ^= 1;
    return zip_flaw(bytes);
  };
  for (const std::size_t field : {4U, 16U, 20U, 24U, 32U, 40U, 48U, 55U}) {
    EXPECT_THAT(damaged(field), HasSubstr("two ends contradict each other")) << field;
  }
  for (const std::size_t field : {0U, 56U + 4, 56U + 8, 56U + 15, 56U + 16}) {
    EXPECT_THAT(damaged(field), HasSubstr("64-bit end is not where its locator says")) << field;
  }
  for (const std::size_t field : {56U + 20 + 10, 56U + 20 + 12, 56U + 20 + 16}) {
    EXPECT_NE(damaged(field), "") << field;
  }
}

TEST(ZipReader, ACountIsNotBelieved) {
  auto bytes = zip_bytes({{.name = "a", .content = "x"}}, true);
  const std::size_t end64 = bytes.size() - 22 - 20 - 56;
  for (const std::size_t field : {24U, 32U}) bytes[end64 + field + 6] = 0x7f;
  bytes[bytes.size() - 22 + 8] = bytes[bytes.size() - 22 + 9] = 0xff;
  bytes[bytes.size() - 22 + 10] = bytes[bytes.size() - 22 + 11] = 0xff;
  testing::take_largest_allocation();
  EXPECT_THAT(zip_flaw(bytes), HasSubstr("a directory of 47 bytes has no 35747322042253313 files"));
  EXPECT_LE(testing::take_largest_allocation(), 4096U);
}

TEST(ZipReader, RefusesTruncationAtEveryByte) {
  const auto whole =
      zip_bytes({described("x/a", "one", true, 4), {.name = "x/b", .content = "two"}}, true);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(zip_flaw(testing::cut(whole, size)),
        HasSubstr(concat("FILE: offset ", size, ": no zip archive's end")));
  }
}

}  // namespace
}  // namespace lockstep
