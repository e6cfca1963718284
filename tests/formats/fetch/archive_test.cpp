#include "lockstep/formats/fetch/archive.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/formats/fetch/archive_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/formats/weights/zip_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::cut;
using ::testing::HasSubstr;
using testing::sparse_tar_bytes;
using testing::tar_bytes;
using testing::zip_bytes;

/// Unpacks bytes into a folder of its own, beside which nothing may appear.
class Archive : public ::testing::Test {
 protected:
  Unpacked extract(const Bytes& bytes, const ArchiveLimits& limits = {}) {
    archive_ = directory_.write("archive", bytes);
    fs::remove_all(root());
    fs::create_directory(root());
    return extract_archive(archive_, root(), limits);
  }

  /// Returns the message without the archive's path.
  std::string refusal(const Bytes& bytes, const ArchiveLimits& limits = {}) {
    const std::string text = testing::message_of<DataError>([&] { extract(bytes, limits); });
    const std::string path = archive_.string() + ": ";
    EXPECT_TRUE(text.starts_with(path)) << text;
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 2);
    return text.substr(path.size());
  }

  fs::path root() const { return directory_.path() / "root"; }

  std::string text_of(const std::string& name) const { return testing::contents(root() / name); }

  testing::TemporaryFolder directory_;
  fs::path archive_;
};

using ArchiveDamage = Archive;

TEST_F(Archive, GivesFilesAndFoldersOfATarFile) {
  const auto bytes =
      tar_bytes({{.name = "./", .type = '5'}, {.name = "set/", .type = '5', .mode = 02775},
          {.name = "set/a.bin", .data = std::string(70'000, 'a')},
          {.name = "./set//deep/er/b", .data = "b", .mode = 0700}, {.name = "set/empty"}});
  for (const Bytes& archive : {bytes, testing::gzip(bytes)}) {
    const auto unpacked = extract(archive);
    EXPECT_EQ(unpacked.files, 3U);
    EXPECT_EQ(unpacked.bytes, 70'001U);
    EXPECT_EQ(text_of("set/a.bin"), std::string(70'000, 'a'));
    EXPECT_EQ(text_of("set/deep/er/b"), "b");
    EXPECT_EQ(fs::file_size(root() / "set/empty"), 0U);
  }
}

TEST_F(Archive, GivesFilesAndFoldersOfAZipFile) {
  const auto unpacked = extract(zip_bytes(
      {{.name = "set/", .mode = 040755}, {.name = "set/a", .content = "alpha"}, {.name = "b"}}));
  EXPECT_EQ(unpacked.files, 2U);
  EXPECT_EQ(text_of("set/a"), "alpha");
  EXPECT_TRUE(fs::is_regular_file(root() / "b"));
}

TEST_F(Archive, GivesNoOtherModesThanOurs) {
  extract(tar_bytes({{.name = "plain", .mode = 0666}, {.name = "program", .mode = 0777},
      {.name = "secret", .mode = 0}}));
  EXPECT_EQ(fs::status(root() / "plain").permissions() & fs::perms(0022), fs::perms::none);
  EXPECT_EQ(fs::status(root() / "program").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(root() / "secret").permissions() & fs::perms(0400), fs::perms(0400));
}

TEST_F(Archive, KeepsNamesThatAreNotAscii) {
  extract(tar_bytes({{.name = "\xc3\xa4pfel\xff"}}));
  EXPECT_TRUE(fs::exists(root() / "\xc3\xa4pfel\xff"));
}

TEST_F(Archive, KeepsNamesThatAreSaidToBeUtf8InEveryLocale) {
  extract(
      tar_bytes({{.name = "pax", .data = "15 path=\xc3\xa4pfel\n", .type = 'x'}, {.name = "a"}}));
  EXPECT_TRUE(fs::exists(root() / "\xc3\xa4pfel"));
}

TEST_F(Archive, LeavesOutTheTopFolder) {
  const auto archive = directory_.write(
      "archive", tar_bytes({{.name = "set/", .type = '5'}, {.name = "./set/a", .data = "a"}}));
  fs::create_directory(root());
  EXPECT_EQ(extract_archive(archive, root(), {}, "set").files, 1U);
  EXPECT_EQ(text_of("a"), "a");
  fs::remove_all(root());
  fs::create_directory(root());
  EXPECT_THROW(extract_archive(archive, root(), {}, "other"), DataError);
  EXPECT_TRUE(fs::is_empty(root()));
}

TEST_F(Archive, RefusesNamesThatLeaveTheFolderAndWhatIsNeitherFileNorFolder) {
  const std::string absolute = (directory_.path() / "x").string();
  const std::vector<std::pair<Bytes, std::string>> cases{
      {tar_bytes({{.name = "a"}, {.name = "../x", .data = "x"}}),
          "entry 2 (../x): its name leaves the folder by .."},
      {tar_bytes({{.name = "a/../../x"}}), "entry 1 (a/../../x): its name leaves the folder by .."},
      {zip_bytes({{.name = "a/.."}}), "entry 1 (a/..): its name leaves the folder by .."},
      {tar_bytes({{.name = absolute}}), "entry 1 (" + absolute + "): its name is an absolute path"},
      {zip_bytes({{.name = absolute}}), "entry 1 (" + absolute + "): its name is an absolute path"},
      {tar_bytes({{.name = "a", .type = '2', .link = ".."}, {.name = "a/x", .data = "through it"}}),
          "entry 1 (a): it is a symbolic link"},
      {tar_bytes({{.name = "a"}, {.name = "b", .type = '1', .link = "/etc/passwd"}}),
          "entry 2 (b): it is a hard link"},
      {zip_bytes({{.name = "a", .content = "/etc/passwd", .mode = 0120777}}),
          "entry 1 (a): it is a symbolic link"},
      {tar_bytes({{.name = "a", .type = '3'}}), "entry 1 (a): it is a device"},
      {tar_bytes({{.name = "a", .type = '4'}}), "entry 1 (a): it is a device"},
      {tar_bytes({{.name = "a", .type = '6'}}), "entry 1 (a): it is a FIFO"},
      {zip_bytes({{.name = "a", .mode = 0140644}}), "entry 1 (a): it is neither file nor folder"},
      {tar_bytes({{.name = "a", .mode = 04755}}), "entry 1 (a): it is a setuid or setgid file"},
      {tar_bytes({{.name = "a", .mode = 02755}}), "entry 1 (a): it is a setuid or setgid file"},
      {sparse_tar_bytes("a", std::uint64_t{8} << 30), "entry 1 (a): it is a sparse file"},
      {tar_bytes({{.name = "a\nb\x1b[2J"}}),
          "entry 1 (a\\nb\\x1b[2J): its name holds a control character"}};
  for (const auto& [archive, message] : cases) EXPECT_EQ(refusal(archive), message);
}

TEST_F(Archive, RefusesANameThatIsThereTwice) {
  EXPECT_EQ(refusal(tar_bytes({{.name = "a", .data = "1"}, {.name = "./a", .data = "2"}})),
      "entry 2 (./a): duplicate entry");
  EXPECT_EQ(text_of("a"), "1");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a", .type = '5'}, {.name = "a"}})),
      "entry 2 (a): duplicate entry");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a"}, {.name = "a/b"}})),
      "entry 2 (a/b): a file has the name of its folder");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a"}, {.name = "a", .type = '5'}})),
      "entry 2 (a): a file has the name of its folder");
}

TEST_F(Archive, RefusesTooManyEntries) {
  std::vector<testing::TarEntry> entries(1001);
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].name = std::to_string(i);
  const ArchiveLimits limits{.entries = 1000};
  EXPECT_EQ(refusal(tar_bytes(entries), limits), "entry 1001 (1000): there are more than 1000");
  entries.pop_back();
  EXPECT_EQ(extract(tar_bytes(entries), limits).files, 1000U);
}

TEST_F(Archive, RefusesTooManyBytes) {
  const auto bytes = tar_bytes({{.name = "a", .data = "12345"}, {.name = "b", .data = "67"}});
  EXPECT_EQ(refusal(bytes, {.bytes = 6}), "entry 2 (b): the files hold more than 6 bytes");
  EXPECT_EQ(extract(bytes, {.bytes = 7}).bytes, 7U);
}

TEST_F(Archive, RefusesLongNames) {
  const std::string longest = std::string(255, 'a') + "/" + std::string(200, 'b');
  extract(tar_bytes({{.name = longest}}));
  EXPECT_TRUE(fs::exists(root() / longest));
  EXPECT_THAT(refusal(tar_bytes({{.name = std::string(256, 'a')}})),
      HasSubstr("...): a part of its name is longer than 255 bytes"));
  EXPECT_THAT(refusal(tar_bytes({{.name = longest}}), {.path_bytes = 455}),
      HasSubstr("its name is longer than 455 bytes"));
  EXPECT_THAT(refusal(tar_bytes({{.name = "a/b/c/d"}}), {.depth = 3}),
      HasSubstr("it lies more than 3 folders deep"));
}

TEST_F(Archive, UnpacksNoArchiveWithinAnArchive) {
  const auto inner = zip_bytes({{.name = "x", .content = "x"}});
  const std::string data(inner.begin(), inner.end());
  EXPECT_EQ(extract(zip_bytes({{.name = "archive.zip", .content = data}})).files, 1U);
  EXPECT_EQ(text_of("archive.zip"), data);
}

TEST_F(Archive, NeedsAnEmptyFolder) {
  const auto archive = directory_.write("archive", tar_bytes({{.name = "a"}}));
  EXPECT_THROW(extract_archive(archive, directory_.path()), InvalidArgument);
  EXPECT_THROW(extract_archive(archive, directory_.path() / "missing"), InvalidArgument);
}

/// Makes a file of a zip archive that holds gzip's deflate stream without its frame.
testing::ZipPart deflated(const std::string& name, const std::string& data) {
  constexpr std::ptrdiff_t kHeader = 10, kTrailer = 8;
  const Bytes member = testing::gzip({data.begin(), data.end()}, 9);
  return {.name = name,
      .content = {member.begin() + kHeader, member.end() - kTrailer},
      .method = 8,
      .checksum = testing::checksum_of(data),
      .unpacked = data.size()};
}

std::string zeros() {
  std::string data;
  data.resize(20'000'000);
  return data;
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
  const auto bomb = zip_bytes({deflated("a", zeros())});
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
    EXPECT_NE(refusal(cut(whole, size)), "") << size;
  }
  for (std::size_t size = 0; size < packed.size(); ++size) {
    EXPECT_NE(refusal(cut(packed, size)), "") << size;
  }
  EXPECT_EQ(
      refusal(cut(whole, 2048)), "offset 2048: the archive ends too early, without its end mark");
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
      refusal(zip_bytes({{.name = "a", .content = "aaa", .checksum = 1}})), HasSubstr("CRC"));
}

TEST_F(ArchiveDamage, RefusesWhatIsNoArchive) {
  EXPECT_THAT(refusal({}), HasSubstr("no archive that can be read"));
  const std::string page = "<html><body>404 Not Found</body></html>";
  EXPECT_THAT(refusal(Bytes(page.begin(), page.end())), HasSubstr("no archive that can be read"));
  EXPECT_THAT(refusal(Bytes(5000, 0x42)), HasSubstr("no archive that can be read"));
}

class ChecksumList : public ::testing::Test {
 protected:
  ChecksumList() {
    fs::create_directory(folder_.path() / "inner");
    put("b", "abc");
    put("inner/a", "");
    write_checksum_list(folder_.path());
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }

  std::string fault() const { return checksum_list_fault(folder_.path()).value_or("none"); }

  testing::TemporaryFolder folder_;
};

TEST_F(ChecksumList, IsWhatSha256sumWrites) {
  EXPECT_EQ(testing::contents(folder_.path() / "SHA256SUMS"),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  inner/a\n");
}

TEST_F(ChecksumList, SeesAChangedOrMissingFileAndNoOther) {
  EXPECT_EQ(fault(), "none");
  put("mine", "more");
  EXPECT_EQ(fault(), "none");
  fs::remove(folder_.path() / "inner" / "a");
  EXPECT_THAT(fault(), HasSubstr("inner/a: cannot be opened"));
  put("b", "abd");
  EXPECT_THAT(fault(), HasSubstr("b has the SHA-256 a52d159f262b2c6ddb724a61840befc36eb30c88877a"));
  EXPECT_THAT(fault(), HasSubstr("and must have ba7816bf8f01cfea414140de5dae2223b00361a396177a9c"));
}

TEST_F(ChecksumList, SeesThatItselfIsDamaged) {
  put("SHA256SUMS", "");
  EXPECT_EQ(fault(), "its list of checksums is empty");
  for (const char* line : {"abc  b", "zz", "\n"}) {
    put("SHA256SUMS", line);
    EXPECT_EQ(fault(), "its list of checksums is damaged") << line;
  }
  const std::string hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  put("SHA256SUMS", hash + "  ../b\n");
  EXPECT_THAT(fault(), HasSubstr("leaves the folder"));
  put("SHA256SUMS", hash + " *b\n");
  EXPECT_EQ(fault(), "its list of checksums is damaged");
  fs::remove(folder_.path() / "SHA256SUMS");
  EXPECT_EQ(fault(), "it has no list of checksums, SHA256SUMS");
}

}  // namespace
}  // namespace lockstep
