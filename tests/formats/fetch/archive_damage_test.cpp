#include <gmock/gmock.h>

#include "tests/formats/fetch/archive_bytes.h"
#include "tests/formats/fetch/archive_fixture.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::tar_bytes;
using testing::zip_bytes;

using ArchiveDamage = testing::ArchiveTest;

std::string zeros() {
  std::string text;
  text.resize(20'000'000);
  return text;
}

TEST_F(ArchiveDamage, RefusesBombs) {
  const auto bomb = testing::gzip(tar_bytes({{.name = "a", .data = zeros()}}), 9);
  ASSERT_LT(bomb.size(), 40'000U);
  EXPECT_THAT(refusal(bomb), HasSubstr("the archive grows to more than 100 times its size"));
  EXPECT_LT(fs::file_size(root() / "a"), 7'000'000U);
  EXPECT_EQ(extract(bomb, {.ratio = 2000}).bytes, 20'000'000U);
  // Zeros that belong to no entry cost time, too.
  auto padded = tar_bytes({{.name = "a"}});
  padded.resize(20'000'000);
  EXPECT_THAT(refusal(testing::gzip(padded, 9)),
      HasSubstr("the archive grows to more than 100 times its size"));
}

TEST_F(ArchiveDamage, RefusesZipBombs) {
  const auto bomb = zip_bytes({{.name = "a", .data = zeros(), .deflated = true}});
  ASSERT_LT(bomb.size(), 40'000U);
  EXPECT_EQ(refusal(bomb), "the archive grows to more than 100 times its size");
  EXPECT_LT(fs::file_size(root() / "a"), 4'500'000U);
  EXPECT_EQ(extract(bomb, {.ratio = 2000}).bytes, 20'000'000U);
}

TEST_F(ArchiveDamage, TakesWhatIsSmallAtAnyRatio) {
  EXPECT_EQ(
      extract(testing::gzip(tar_bytes({{.name = "a", .data = std::string(1'000'000, 'a')}}), 9))
          .bytes,
      1'000'000U);
}

TEST_F(ArchiveDamage, RefusesTruncationAtEveryBlockAndMore) {
  const auto whole = tar_bytes({{.name = "a", .data = "aaa"}, {.name = "b", .data = "bbb"}});
  const auto packed = testing::gzip(whole);
  for (std::size_t size = 0; size < whole.size(); size += 64) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(refusal(cut), "") << size;
  }
  for (std::size_t size = 0; size < packed.size(); ++size) {
    const Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(refusal(cut), "") << size;
  }
  EXPECT_EQ(refusal(Bytes(whole.begin(), whole.begin() + 2048)),
      "offset 2048: the archive ends too early, without its end mark");
}

TEST_F(ArchiveDamage, RefusesOtherBytesAfterTheEnd) {
  auto bytes = tar_bytes({{.name = "a"}});
  const std::size_t end = bytes.size();
  bytes.resize(10'240);
  EXPECT_EQ(extract(bytes).files, 1U);  // tar pads to 10 KiB
  for (const std::size_t at : {end, end + 100, std::size_t{10'239}, std::size_t{200'000}}) {
    auto more = bytes;
    more.resize(std::max(more.size(), at + 1));
    more[at] = 1;
    EXPECT_THAT(refusal(more), HasSubstr("other bytes come after the archive's end")) << at;
  }
}

TEST_F(ArchiveDamage, RefusesDamage) {
  auto bytes = tar_bytes({{.name = "a", .data = "aaa"}});
  auto packed = testing::gzip(bytes);
  packed[packed.size() - 6] ^= 1;  // gzip's checksum
  EXPECT_THAT(refusal(packed), HasSubstr("the gzip stream is damaged: incorrect data check"));
  bytes[10] ^= 1;  // under the header's checksum
  EXPECT_THAT(refusal(bytes), HasSubstr("no archive that can be read"));
  EXPECT_THAT(
      refusal(zip_bytes({{.name = "a", .data = "aaa", .wrong_checksum = true}})), HasSubstr("CRC"));
}

TEST_F(ArchiveDamage, RefusesWhatIsNoArchive) {
  EXPECT_THAT(refusal({}), HasSubstr("no archive that can be read"));
  const std::string page = "<html><body>404 Not Found</body></html>";
  EXPECT_THAT(refusal(Bytes(page.begin(), page.end())), HasSubstr("no archive that can be read"));
  EXPECT_THAT(refusal(Bytes(5000, 0x42)), HasSubstr("no archive that can be read"));
}

}  // namespace
}  // namespace lockstep
