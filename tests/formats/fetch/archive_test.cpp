#include "lockstep/formats/fetch/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/fetch/archive_bytes.h"
#include "tests/formats/fetch/archive_fixture.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::sparse_tar_bytes;
using testing::tar_bytes;
using testing::zip_bytes;

using Archive = testing::ArchiveTest;

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
      {{.name = "set/", .mode = 040755}, {.name = "set/a", .data = "alpha"}, {.name = "b"}}));
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

TEST_F(Archive, RefusesNamesThatLeaveTheFolder) {
  EXPECT_EQ(refusal(tar_bytes({{.name = "a"}, {.name = "../x", .data = "x"}})),
      "entry 2 (../x): its name leaves the folder by ..");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a/../../x"}})),
      "entry 1 (a/../../x): its name leaves the folder by ..");
  EXPECT_EQ(
      refusal(zip_bytes({{.name = "a/.."}})), "entry 1 (a/..): its name leaves the folder by ..");
  const std::string absolute = (directory_.path() / "x").string();
  EXPECT_EQ(refusal(tar_bytes({{.name = absolute}})),
      "entry 1 (" + absolute + "): its name is an absolute path");
  EXPECT_EQ(refusal(zip_bytes({{.name = absolute}})),
      "entry 1 (" + absolute + "): its name is an absolute path");
}

TEST_F(Archive, RefusesLinks) {
  EXPECT_EQ(refusal(tar_bytes(
                {{.name = "a", .type = '2', .link = ".."}, {.name = "a/x", .data = "through it"}})),
      "entry 1 (a): it is a symbolic link");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a"}, {.name = "b", .type = '1', .link = "/etc/passwd"}})),
      "entry 2 (b): it is a hard link");
  EXPECT_EQ(refusal(zip_bytes({{.name = "a", .data = "/etc/passwd", .mode = 0120777}})),
      "entry 1 (a): it is a symbolic link");
}

TEST_F(Archive, RefusesWhatIsNeitherFileNorFolder) {
  EXPECT_EQ(refusal(tar_bytes({{.name = "a", .type = '3'}})), "entry 1 (a): it is a device");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a", .type = '4'}})), "entry 1 (a): it is a device");
  EXPECT_EQ(refusal(tar_bytes({{.name = "a", .type = '6'}})), "entry 1 (a): it is a FIFO");
  EXPECT_EQ(refusal(zip_bytes({{.name = "a", .mode = 0140644}})),
      "entry 1 (a): it is neither file nor folder");
}

TEST_F(Archive, RefusesSetuidFiles) {
  for (const unsigned mode : {04755U, 02755U}) {
    EXPECT_EQ(refusal(tar_bytes({{.name = "a", .mode = mode}})),
        "entry 1 (a): it is a setuid or setgid file");
  }
}

TEST_F(Archive, RefusesASparseFile) {
  EXPECT_EQ(
      refusal(sparse_tar_bytes("a", std::uint64_t{8} << 30)), "entry 1 (a): it is a sparse file");
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

TEST_F(Archive, RefusesAndShowsControlCharacters) {
  EXPECT_EQ(refusal(tar_bytes({{.name = "a\nb\x1b[2J"}})),
      "entry 1 (a\\nb\\x1b[2J): its name holds a control character");
}

TEST_F(Archive, UnpacksNoArchiveWithinAnArchive) {
  const auto inner = zip_bytes({{.name = "x", .data = "x"}});
  const std::string data(inner.begin(), inner.end());
  EXPECT_EQ(extract(zip_bytes({{.name = "archive.zip", .data = data}})).files, 1U);
  EXPECT_EQ(text_of("archive.zip"), data);
}

TEST_F(Archive, NeedsAnEmptyFolder) {
  const auto archive = directory_.write("archive", tar_bytes({{.name = "a"}}));
  EXPECT_THROW(extract_archive(archive, directory_.path()), InvalidArgument);
  EXPECT_THROW(extract_archive(archive, directory_.path() / "missing"), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
