// What happens to a file between the scan and its reading.

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lockstep/data/image_folder.h"

#include "tests/data/class_folders.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using testing::ClassFolders;
using ::testing::HasSubstr;
using testing::refusal;

TEST(ImageFolder, SeesThatAFileIsGone) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const ImageFolder folder(folders.path());
  fs::remove(folder.path(0));
  const std::string reason = folder.name(0) + ": is gone since the folder was scanned: ";
  const std::string advice = "; do not change a data set while it is read";
  EXPECT_EQ(refusal([&] { folder.open(0); }), reason + "No such file or directory" + advice);
  fs::create_symlink(folder.path(1), folder.path(0));
  EXPECT_EQ(
      refusal([&] { folder.open(0); }), reason + "Too many levels of symbolic links" + advice);
}

TEST(ImageFolder, SeesThatAFileWasChanged) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("a/1.jpg", "before");
  const ImageFolder folder(folders.path());
  const auto time = fs::last_write_time(folder.path(0));
  folders.write("a/1.jpg", "after it");
  fs::last_write_time(folder.path(0), time);
  EXPECT_EQ(
      refusal([&] { folder.open(0); }),
      folder.name(0) +
          ": was changed since the folder was scanned: 6 bytes then, 8 now; do not change a data "
          "set while it is read");
  folders.write("a/1.jpg", "before");
  fs::last_write_time(folder.path(0), time + std::chrono::nanoseconds(1));
  EXPECT_THAT(refusal([&] { folder.open(0); }), HasSubstr("6 bytes then, 6 now"));
  fs::last_write_time(folder.path(0), time);
  EXPECT_EQ(folder.open(0), testing::bytes_of("before"));
}

TEST(ImageFolder, SeesThatAFileIsNoFileAnyMore) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("a/1.jpg", "");
  const ImageFolder folder(folders.path());
  const auto time = fs::last_write_time(folder.path(0));
  fs::remove(folder.path(0));
  ASSERT_EQ(::mkfifo(folder.path(0).c_str(), 0600), 0);
  fs::last_write_time(folder.path(0), time);
  EXPECT_THAT(refusal([&] { folder.open(0); }), HasSubstr("was changed since the folder"));
}

}  // namespace
}  // namespace lockstep::data
