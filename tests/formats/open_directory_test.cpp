#include "lockstep/formats/open_directory.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <system_error>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class OpenDirectoryTest : public ::testing::Test {
 protected:
  OpenDirectoryTest() {
    fs::create_directories(path_ / "inner" / "deep");
    std::ofstream(path_ / "file") << "text";
    fs::create_symlink("file", path_ / "link");
    fs::create_directory_symlink("inner", path_ / "folder-link");
  }

  testing::TemporaryFolder directory_;
  fs::path path_ = directory_.path() / "folder";
};

TEST_F(OpenDirectoryTest, ListsItsNamesAgainAndAgain) {
  const OpenDirectory folder = OpenDirectory::open(path_);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(folder.names(), ElementsAre("file", "folder-link", "inner", "link"));
  }
  EXPECT_THAT(folder.child("inner").names(), ElementsAre("deep"));
  EXPECT_THAT(folder.child("inner").child("deep").names(), ElementsAre());
}

TEST_F(OpenDirectoryTest, FollowsLinksOnlyInThePathThatItIsGiven) {
  const OpenDirectory folder = OpenDirectory::open(path_ / "folder-link");
  EXPECT_THAT(folder.names(), ElementsAre("deep"));
  EXPECT_THROW(OpenDirectory::open(path_).child("folder-link"), DataError);
  EXPECT_THROW(OpenDirectory::open(path_).child("file"), DataError);
  EXPECT_THROW(OpenDirectory::open(path_).file("link"), DataError);
  EXPECT_THROW(OpenDirectory::open(path_).file("inner"), DataError);
  EXPECT_THROW(OpenDirectory::open(path_).file("missing"), DataError);
  EXPECT_THROW(OpenDirectory::open(path_).child("missing"), std::system_error);
  EXPECT_THROW(OpenDirectory::open(path_ / "missing"), std::system_error);
  EXPECT_TRUE(OpenDirectory::open(path_).file("file"));
}

TEST_F(OpenDirectoryTest, StaysWhereItIsWhenItsPathGoes) {
  const OpenDirectory folder = OpenDirectory::open(path_);
  fs::rename(path_, directory_.path() / "moved");
  fs::create_directory(path_);
  EXPECT_TRUE(folder.has("file"));
  folder.remove("file");
  EXPECT_FALSE(fs::exists(directory_.path() / "moved" / "file"));
}

TEST_F(OpenDirectoryTest, TakesSingleNamesOnly) {
  const OpenDirectory folder = OpenDirectory::open(path_);
  for (const std::string& name :
      {std::string(), std::string("."), std::string(".."), std::string("inner/deep"),
          std::string("/"), std::string("../folder"), std::string("file\0x", 6)}) {
    EXPECT_THROW(folder.child(name), InvalidArgument) << name;
    EXPECT_THROW(folder.file(name), InvalidArgument) << name;
    EXPECT_THROW(folder.has(name), InvalidArgument) << name;
    EXPECT_THROW(folder.remove(name), InvalidArgument) << name;
  }
}

TEST_F(OpenDirectoryTest, RemovesLinksAndNotWhatTheyPointTo) {
  const OpenDirectory folder = OpenDirectory::open(path_);
  folder.remove("folder-link");
  folder.remove("link");
  EXPECT_THAT(folder.names(), ElementsAre("file", "inner"));
  std::ofstream(path_ / "inner" / "deep" / "a") << "x";
  fs::create_directory_symlink(directory_.path(), path_ / "inner" / "up");
  folder.remove("inner");
  EXPECT_THAT(folder.names(), ElementsAre("file"));
  EXPECT_THROW(folder.remove("inner"), std::system_error);
}

TEST_F(OpenDirectoryTest, SeesLinksToNowhere) {
  fs::create_symlink("nowhere", path_ / "dangling");
  EXPECT_TRUE(OpenDirectory::open(path_).has("dangling"));
  EXPECT_FALSE(OpenDirectory::open(path_).has("nowhere"));
}

TEST_F(OpenDirectoryTest, NeverWaitsForAFifo) {
  ASSERT_EQ(::mkfifo((path_ / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(OpenDirectory::open(path_).file("fifo"), DataError);
}

}  // namespace
}  // namespace lockstep
