#include "lockstep/formats/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <system_error>

#include "tests/formats/idx_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;

TEST(OutputFile, WritesWhatItIsGiven) {
  const testing::TemporaryFolder directory;
  OutputFile file(directory.path() / "a");
  file.write(std::string("one"));
  file.write(Bytes{' ', 't', 'w', 'o'});
  file.close();
  EXPECT_EQ(testing::contents(directory.path() / "a"), "one two");
}

TEST(OutputFile, NeverWritesOverWhatIsThere) {
  const testing::TemporaryFolder directory;
  const auto old = directory.write("old", Bytes{'o', 'l', 'd'});
  const auto link = directory.path() / "link";
  fs::create_symlink(directory.path() / "elsewhere", link);
  for (const auto& path : {old, link, directory.path() / "missing" / "a"}) {
    EXPECT_THROW(OutputFile{path}, std::system_error) << path;
  }
  EXPECT_EQ(testing::contents(old), "old");
  EXPECT_FALSE(fs::exists(directory.path() / "elsewhere"));
}

TEST(OutputFile, SaysThatNoMoreCanBeWritten) {
  const testing::TemporaryFolder directory;
  const testing::FileSizeLimit limit(10);
  OutputFile file(directory.path() / "a");
  file.write(std::string(10, 'a'));
  EXPECT_THROW(file.write(std::string("b")), std::system_error);
}

TEST(AtomicFile, IsThereOnlyWhenCommitted) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "a";
  {
    AtomicFile file(path);
    file.write("one");
    file.write(Bytes{'t', 'w', 'o'});
    EXPECT_FALSE(fs::exists(path));
    file.commit();
  }
  EXPECT_EQ(testing::file_bytes(path), (Bytes{'o', 'n', 'e', 't', 'w', 'o'}));
  EXPECT_EQ(directory.names().size(), 1U);
}

TEST(AtomicFile, LeavesNothingAndTheOldOneWithoutCommit) {
  const testing::TemporaryFolder directory;
  const auto path = directory.write("a", Bytes{1});
  { AtomicFile(path).write("two"); }
  EXPECT_EQ(testing::file_bytes(path), Bytes{1});
  EXPECT_EQ(directory.names().size(), 1U);
  AtomicFile again(path);
  again.write("x");
  again.commit();
  EXPECT_EQ(testing::file_bytes(path), Bytes{'x'});
}

TEST(AtomicFile, HasTheModeThatTheUserWants) {
  const testing::TemporaryFolder directory;
  const mode_t before = ::umask(027);
  AtomicFile file(directory.path() / "a");
  ::umask(before);
  file.commit();
  struct stat status {};
  ASSERT_EQ(::stat((directory.path() / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(AtomicFile, SaysWhatTheSystemRefuses) {
  const testing::TemporaryFolder directory;
  EXPECT_THROW(AtomicFile(directory.path() / "none" / "a"), std::system_error);
  AtomicFile file(directory.path());  // a directory cannot be replaced by a file
  EXPECT_THROW(file.commit(), std::system_error);
}

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

  std::size_t names() const { return folder_.names().size(); }

  testing::TemporaryFolder folder_;
};

TEST_F(AtomicDirectoryTest, AppearsWhole) {
  fill(folder_.path() / "set", true);
  EXPECT_EQ(fs::file_size(folder_.path() / "set" / "inner" / "a"), 4U);
  EXPECT_EQ(fs::status(folder_.path() / "set").permissions(), fs::perms(0755));
  EXPECT_EQ(names(), 1U);
}

TEST_F(AtomicDirectoryTest, LeavesNothingWithoutCommit) {
  fill(folder_.path() / "set", false);
  EXPECT_EQ(names(), 0U);
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
  folder_.write("file", Bytes{});
  EXPECT_THROW(fill(folder_.path() / "file", true), InvalidArgument);
  fs::create_directory(folder_.path() / "other");
  fs::create_symlink("other", folder_.path() / "link");
  EXPECT_THROW(fill(folder_.path() / "link", true), InvalidArgument);
  EXPECT_EQ(names(), 4U);
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
