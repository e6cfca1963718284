#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/data/class_folders.h"
#include "tests/support/message_of.h"

#include "lockstep/data/image_folder.h"

// What happens to a file between the scan and its reading.

namespace lockstep::data {
namespace {

using lockstep::testing::message_of;
using testing::ClassFolders;

TEST(ImageFolders, OpensTheParts) {
  for (const std::string name : {"val", "valid", "validation"}) {
    const ClassFolders folders(
        {"train/a/1.jpg", "train/a/2.jpg", "train/b/1.jpg", name + "/a/1.jpg", name + "/b/1.jpg",
            "test/a/1.jpg", "test/b/1.jpg", "test/b/2.jpg", "test/b/3.jpg", "README"});
    const auto parts = open_image_folders(folders.path());
    EXPECT_EQ(parts.train.size(), 3);
    ASSERT_TRUE(parts.validation && parts.test);
    EXPECT_EQ(parts.validation->size(), 2);
    EXPECT_EQ(parts.test->size(), 4);
  }
}

TEST(ImageFolders, OpensOneFolderOfClasses) {
  const ClassFolders flat({"a/1.jpg", "b/1.jpg", "b/2.jpg"});
  const auto parts = open_image_folders(flat.path());
  EXPECT_EQ(parts.train.size(), 3);
  EXPECT_FALSE(parts.validation || parts.test);
  const ClassFolders alone({"train/a/1.jpg", "train/b/1.jpg"});
  EXPECT_EQ(open_image_folders(alone.path()).train.size(), 2);
  EXPECT_FALSE(open_image_folders(alone.path()).validation);
}

TEST(ImageFolders, HaveTheClassesThatAreNamedInEachPart) {
  const ClassFolders folders({"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/b/1.jpg",
      "val/c/1.jpg", "val/d/1.jpg"});
  const auto parts = open_image_folders(folders.path(), {"c", "b"});
  EXPECT_EQ(parts.train.class_names(), (std::vector<std::string>{"c", "b"}));
  ASSERT_TRUE(parts.validation);
  EXPECT_EQ(parts.validation->class_names(), parts.train.class_names());
  EXPECT_THROW(open_image_folders(folders.path(), {"c", "a"}), InvalidArgument) << "not in val";
}

TEST(ImageFolders, RefusesPartsWithOtherClasses) {
  const ClassFolders missing(
      {"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/a/1.jpg", "val/c/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(missing.path()); }),
      (missing.path() / "val").string() + ": the classes must be those of train: b is missing");
  const ClassFolders extra(
      {"train/a/1.jpg", "train/c/1.jpg", "test/a/1.jpg", "test/b/1.jpg", "test/c/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(extra.path()); }),
      (extra.path() / "test").string() + ": the classes must be those of train: b is not there");
  const ClassFolders last(
      {"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/b/1.jpg", "val/d/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(last.path()); }),
      (last.path() / "val").string() + ": the classes must be those of train: d is not there");
  const ClassFolders fewer(
      {"train/a/1.jpg", "train/b/1.jpg", "train/d/1.jpg", "val/a/1.jpg", "val/b/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(fewer.path()); }),
      (fewer.path() / "val").string() + ": the classes must be those of train: d is missing");
}

TEST(ImageFolders, RefusesLayoutsWithTwoMeanings) {
  const ClassFolders both({"train/a/1.jpg", "train/b/1.jpg", "plane/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(both.path()); }),
      both.path().string() +
          ": the folder plane is next to the folder train; a set has either parts (train, val, "
          "test) or classes");
  const ClassFolders twice({"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/b/1.jpg",
      "valid/a/1.jpg", "valid/b/1.jpg"});
  EXPECT_EQ(message_of<DataError>([&] { open_image_folders(twice.path()); }),
      twice.path().string() + ": two folders to validate with: val and valid");
}

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(ImageFolder, SeesThatAFileIsGone) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const ImageFolder folder(folders.path());
  fs::remove(folder.path(0));
  const std::string reason = folder.name(0) + ": is gone since the folder was scanned: ";
  const std::string advice = "; do not change a data set while it is read";
  EXPECT_EQ(message_of<DataError>([&] { folder.open(0); }),
      reason + "No such file or directory" + advice);
  fs::create_symlink(folder.path(1), folder.path(0));
  EXPECT_EQ(message_of<DataError>([&] { folder.open(0); }),
      reason + "Too many levels of symbolic links" + advice);
}

TEST(ImageFolder, SeesThatAFileWasChanged) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("a/1.jpg", "before");
  const ImageFolder folder(folders.path());
  const auto time = fs::last_write_time(folder.path(0));
  folders.write("a/1.jpg", "after it");
  fs::last_write_time(folder.path(0), time);
  EXPECT_EQ(message_of<DataError>([&] { folder.open(0); }),
      folder.name(0) +
          ": was changed since the folder was scanned: 6 bytes then, 8 now; do not change a data "
          "set while it is read");
  folders.write("a/1.jpg", "before");
  fs::last_write_time(folder.path(0), time + std::chrono::nanoseconds(1));
  EXPECT_THAT(message_of<DataError>([&] { folder.open(0); }), HasSubstr("6 bytes then, 6 now"));
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
  EXPECT_THAT(
      message_of<DataError>([&] { folder.open(0); }), HasSubstr("was changed since the folder"));
}

}  // namespace

}  // namespace lockstep::data
