#include "lockstep/data/download/fetch_set.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/formats/fetch/archive_bytes.h"
#include "tests/formats/fetch/file_server.h"
#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"

namespace lockstep::data {
namespace {

using lockstep::testing::message_of;
namespace fs = std::filesystem;
using lockstep::testing::FileServer;
using lockstep::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(KnownSets, PinsEveryFile) {
  std::set<std::string> hashes;
  for (const KnownSet& set : known_sets()) {
    EXPECT_EQ(&known_set(set.name), &set);
    EXPECT_EQ(set.files.size(), set.archive_folder.empty() ? 4U : 1U);
    for (const Download& file : set.files) {
      EXPECT_TRUE(is_sha256(file.sha256)) << file.name;
      EXPECT_TRUE(hashes.insert(file.sha256).second) << file.name;
      EXPECT_GT(file.bytes, 4000U);
      ASSERT_FALSE(file.addresses.empty());
      for (const auto& address : file.addresses) {
        EXPECT_THAT(address, ::testing::StartsWith("https://"));
        EXPECT_THAT(address, ::testing::EndsWith("/" + file.name));
      }
    }
  }
}

TEST(KnownSets, SaysWhatCannotBeFetched) {
  const auto refusal = [](const std::string& name) -> std::string {
    return message_of<InvalidArgument>([&] { known_set(name); });
  };
  EXPECT_THAT(refusal("imagenet"), HasSubstr("DIR/train/CLASS and DIR/val/CLASS"));
  EXPECT_EQ(refusal("svhn"),
      "data fetch: there is no set svhn; there are mnist, fashion-mnist, cifar10, cifar100");
}

/// Serves an archive of a small set.
class FetchSet : public ::testing::Test {
 protected:
  FetchSet() : server_(with_archive(directory_)) {
    options_.plain_on_loopback = true;
    options_.attempts = 1;
    const auto content = directory_.path() / "content";
    set_ = {.name = "small",
        .files = {{"good", {}, fs::file_size(content), sha256_of_file(content)}},
        .archive_folder = "small-bin"};
  }

  /// Makes what the server gives, before it starts.
  static fs::path with_archive(const TemporaryFolder& directory) {
    directory.write("content",
        lockstep::testing::gzip(lockstep::testing::tar_bytes(
            {{.name = "small-bin/", .type = '5'}, {.name = "small-bin/a.bin", .data = "aaa"},
                {.name = "small-bin/b.bin", .data = "bbb"}})));
    return directory.path();
  }

  std::vector<FetchedFile> fetch() {
    return fetch_set(set_, target(), server_.address(""), options_);
  }

  fs::path target() const { return directory_.path() / "target"; }

  TemporaryFolder directory_;
  FileServer server_;
  DownloadOptions options_;
  KnownSet set_;
};

TEST_F(FetchSet, UnpacksAnArchiveAndRemovesIt) {
  const auto fetched = fetch();
  ASSERT_EQ(fetched.size(), 1U);
  EXPECT_TRUE(fetched[0].downloaded);
  EXPECT_EQ(std::distance(fs::directory_iterator(target()), {}), 1);
  EXPECT_EQ(fs::file_size(target() / "small-bin" / "a.bin"), 3U);
  EXPECT_TRUE(fs::exists(target() / "small-bin" / "SHA256SUMS"));
}

TEST_F(FetchSet, AsksForNothingThatIsThere) {
  fetch();
  server_.requests();
  EXPECT_FALSE(fetch()[0].downloaded);
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(FetchSet, TakesAnArchiveThatIsThereAndLeavesIt) {
  fs::create_directory(target());
  fs::copy(directory_.path() / "content", target() / "good");
  EXPECT_FALSE(fetch()[0].downloaded);
  EXPECT_THAT(server_.requests(), IsEmpty());
  EXPECT_TRUE(fs::exists(target() / "good"));
  EXPECT_TRUE(fs::exists(target() / "small-bin" / "b.bin"));
}

TEST_F(FetchSet, RefusesAFolderThatIsNotWhole) {
  fetch();
  std::ofstream(target() / "small-bin" / "a.bin") << "other";
  EXPECT_THAT(message_of<DataError>([&] { fetch(); }),
      HasSubstr("small-bin: already exists, but a.bin has the SHA-256"));
}

TEST_F(FetchSet, LeavesNoHalfOfAnArchive) {
  set_.archive_folder = "another-bin";
  EXPECT_THROW(fetch(), DataError);
  EXPECT_FALSE(fs::exists(target() / "another-bin"));
  EXPECT_EQ(std::distance(fs::directory_iterator(target()), {}), 1);  // the archive
}

TEST_F(FetchSet, BringsFilesThatAreNoArchive) {
  set_.archive_folder.clear();
  EXPECT_TRUE(fetch()[0].downloaded);
  EXPECT_FALSE(fetch()[0].downloaded);
  EXPECT_TRUE(fs::exists(target() / "good"));
}

}  // namespace
}  // namespace lockstep::data
