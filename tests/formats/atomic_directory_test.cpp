#include "lockstep/formats/atomic_directory.h"

#include <iterator>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/output_file.h"

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class AtomicDirectoryTest : public ::testing::Test {
 protected:
  void fill(const fs::path& target, bool commit) {
    AtomicDirectory directory(target);
    EXPECT_EQ(fs::status(directory.path()).permissions(), fs::perms(0700));
    fs::create_directory(directory.path() / "inner");
    OutputFile file(directory.path() / "inner" / "a");
    file.write(std::string("text"));
    file.close();
    if (commit) directory.commit();
  }

  std::ptrdiff_t names() const { return std::distance(fs::directory_iterator(folder_.path()), {}); }

  testing::TemporaryFolder folder_;
};

TEST_F(AtomicDirectoryTest, AppearsWhole) {
  fill(folder_.path() / "set", true);
  EXPECT_EQ(fs::file_size(folder_.path() / "set" / "inner" / "a"), 4U);
  EXPECT_EQ(fs::status(folder_.path() / "set").permissions(), fs::perms(0755));
  EXPECT_EQ(names(), 1);
}

TEST_F(AtomicDirectoryTest, LeavesNothingWithoutCommit) {
  fill(folder_.path() / "set", false);
  EXPECT_EQ(names(), 0);
}

TEST_F(AtomicDirectoryTest, MakesItsParentsAndTakesATrailingSlash) {
  fill(folder_.path() / "a" / "b" / "", true);
  EXPECT_TRUE(fs::exists(folder_.path() / "a" / "b" / "inner" / "a"));
}

TEST_F(AtomicDirectoryTest, TakesThePlaceOfAnEmptyFolderOnly) {
  fs::create_directory(folder_.path() / "empty");
  fill(folder_.path() / "empty", true);
  EXPECT_TRUE(fs::exists(folder_.path() / "empty" / "inner" / "a"));
  EXPECT_THROW(fill(folder_.path() / "empty", true), InvalidArgument);
  folder_.write("file", std::vector<std::uint8_t>{});
  EXPECT_THROW(fill(folder_.path() / "file", true), InvalidArgument);
  fs::create_directory(folder_.path() / "other");
  fs::create_symlink("other", folder_.path() / "link");
  EXPECT_THROW(fill(folder_.path() / "link", true), InvalidArgument);
  EXPECT_EQ(names(), 4);
}

TEST_F(AtomicDirectoryTest, LeavesWhatCameInTheMeantime) {
  AtomicDirectory directory(folder_.path() / "set");
  fs::create_directories(folder_.path() / "set" / "theirs");
  EXPECT_THROW(directory.commit(), std::system_error);
  EXPECT_TRUE(fs::exists(folder_.path() / "set" / "theirs"));
}

TEST_F(AtomicDirectoryTest, NeedsANameOfItsOwn) {
  for (const char* name : {"", ".", "..", "./"}) {
    EXPECT_THROW(AtomicDirectory{fs::path(name)}, InvalidArgument) << name;
  }
}

}  // namespace
}  // namespace lockstep
