#include "lockstep/data/image_folder.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "tests/data/class_folders.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::message_of;
using testing::ClassFolders;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A message behind the path with which it begins.
template <typename Call>
std::string complaint(const std::string& path, const Call& call) {
  const auto message = message_of<DataError>(call);
  EXPECT_THAT(message, StartsWith(path));
  return message.substr(std::min(path.size(), message.size()));
}

std::string refusal(const ClassFolders& folders) {
  return complaint(folders.path(), [&] { ImageFolder{folders.path()}; });
}

std::string refusal_of_parts(const ClassFolders& folders) {
  return complaint(folders.path(), [&] { open_image_folders(folders.path()); });
}

std::string refusal_to_read(const ImageFolder& folder, std::int64_t index) {
  return complaint(folder.name(index), [&] { folder.open(index); });
}

std::vector<std::string> paths(const ImageFolder& folder) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < folder.size(); ++i) {
    all.push_back(fs::relative(folder.path(i), folder.directory()).string());
  }
  return all;
}

TEST(ImageFolder, SortsClassesAndFilesByTheirBytes) {
  const ClassFolders folders({"b/2.png", "b/10.jpg", "Z/a.jpeg", "a/x.JPG", "a/X.Png", "a/é.JPEG"});
  const ImageFolder folder(folders.path());
  EXPECT_THAT(folder.class_names(), ElementsAre("Z", "a", "b"));
  EXPECT_THAT(paths(folder),
      ElementsAre("Z/a.jpeg", "a/X.Png", "a/x.JPG", "a/é.JPEG", "b/10.jpg", "b/2.png"));
  EXPECT_THAT(folder.labels(), ElementsAre(0, 1, 1, 1, 2, 2));
  for (std::int64_t i = 0; i < folder.size(); ++i) {
    EXPECT_EQ(folder.label(i), folder.labels()[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(folder.classes(), 3);
  EXPECT_EQ(folder.other_files().count, 0);
}

// As torchvision sorts what os.walk gives: by the whole path of the folder, its own files first.
TEST(ImageFolder, WalksFoldersInsideAClass) {
  const ClassFolders folders({"a/z.jpg", "a/b/1.jpg", "a/b-c/1.jpg", "a/b/d/1.jpg", "b/1.jpg"});
  EXPECT_THAT(paths(ImageFolder(folders.path())),
      ElementsAre("a/z.jpg", "a/b/1.jpg", "a/b-c/1.jpg", "a/b/d/1.jpg", "b/1.jpg"));
}

TEST(ImageFolder, HasTheClassesThatAreNamedInTheirOrder) {
  const ClassFolders folders(
      {"a/1.jpg", "b/1.jpg", "b/2.jpg", "c/1.jpg", "c/2.txt", "empty/1.txt"});
  const ImageFolder folder(folders.path(), {"c", "a"});
  EXPECT_THAT(folder.class_names(), ElementsAre("c", "a"));
  EXPECT_THAT(paths(folder), ElementsAre("c/1.jpg", "a/1.jpg"));
  EXPECT_THAT(folder.labels(), ElementsAre(0, 1));
  EXPECT_EQ(folder.label(1), 1);
  EXPECT_EQ(folder.other_files().count, 1) << "those of its classes";
}

TEST(ImageFolder, RefusesNamesThatAreNoClasses) {
  const ClassFolders folders({"bird/1.jpg", "cat/1.jpg", "dog/1.jpg", ".git/1.jpg"});
  const auto refusal = [&](const std::vector<std::string>& classes) {
    return message_of<InvalidArgument>([&] { ImageFolder(folders.path(), classes); });
  };
  EXPECT_EQ(refusal({"cat", "dgo"}),
      folders.path().string() +
          ": there is no class folder dgo; did you mean dog? (there are bird, cat, dog)");
  EXPECT_THAT(refusal({"cat", ".git"}), HasSubstr("no class folder .git (there are"));
  EXPECT_THAT(refusal({"cat", "../x"}), HasSubstr("no class folder ../x"));
  EXPECT_THAT(refusal({"cat", "dog", "cat"}), HasSubstr("the class cat is named twice"));
  EXPECT_THAT(refusal({"cat"}), HasSubstr("at least two of its classes are needed, not only cat"));
}

TEST(ImageFolder, CountsOtherFiles) {
  const ClassFolders folders({"README", "top.jpg", "a/1.jpg", "a/1.txt", "a/.hidden.jpg", "a/jpg",
      "b/1.png", "b/2.webp", ".git/config"});
  const ImageFolder folder(folders.path());
  EXPECT_THAT(paths(folder), ElementsAre("a/1.jpg", "b/1.png"));
  EXPECT_EQ(folder.other_files().count, 7);
  EXPECT_THAT(folder.other_files().examples, ElementsAre("top.jpg", ".git", "README"));
  EXPECT_EQ(folder.other_files().endings_text(), "2 without an ending, 1 .jpg, 1 .txt, 1 .webp");
  EXPECT_EQ(
      ImageFolder(ClassFolders({"a/1.jpg", "a/.x", "b/2.PNG"}).path()).other_files().endings_text(),
      "");
}

TEST(ImageFolder, ReadsItsFiles) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("b/1.jpg", "content");
  const ImageFolder folder(folders.path());
  EXPECT_EQ(folder.open(1), testing::bytes_of("content"));
  std::vector<std::uint8_t> bytes(100'000, 7);
  folder.open(1, bytes);
  EXPECT_EQ(bytes, testing::bytes_of("content"));
  folders.write("a/1.jpg", "");
  EXPECT_TRUE(ImageFolder(folders.path()).open(0).empty());
}

TEST(ImageFolder, ReadsFromManyThreads) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("b/1.jpg", std::string(100'000, 'x'));
  const ImageFolder folder(folders.path());
  const auto expected = folder.open(1);
  std::vector<std::jthread> threads;
  std::atomic<int> equal = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, folder] {
      for (int i = 0; i < 50; ++i) equal += folder.open(1) == expected ? 1 : 0;
    });
  }
  threads.clear();
  EXPECT_EQ(equal, 200);
}

TEST(ImageFolder, RefusesOtherIndices) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const ImageFolder folder(folders.path());
  for (const std::int64_t index : {-1, 2}) {
    EXPECT_THROW(folder.label(index), InvalidArgument);
    EXPECT_THROW(folder.path(index), InvalidArgument);
    EXPECT_THROW(folder.open(index), InvalidArgument);
  }
}

TEST(ImageFolder, RefusesFoldersWithoutClasses) {
  EXPECT_EQ(
      refusal(ClassFolders({"1.jpg"})), ": no class folder; each class is a folder of images");
  EXPECT_EQ(refusal(ClassFolders({"cats/1.jpg"})),
      ": only one class folder, cats; at least two are needed");
  EXPECT_EQ(refusal(ClassFolders({"cats/1.jpg", "dogs/readme.txt", "dogs/2.webp", "eels/1.jpg"})),
      "/dogs: the class has no JPEG or PNG file, but 2 others; remove the folder or convert them");
}

TEST(ImageFolder, RefusesWhatIsNoFolder) {
  const ClassFolders folders({"file"});
  const auto refusal_below = [&](const fs::path& path) {
    return complaint(path, [&] { ImageFolder{path}; });
  };
  EXPECT_EQ(refusal_below(folders.path() / "absent"),
      ": cannot be opened: No such file or directory; check the path");
  EXPECT_EQ(refusal_below(folders.path() / "file"), ": a folder of class folders is needed");
}

TEST(ImageFolder, FollowsLinksToFilesInside) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("a/1.jpg", "one");
  fs::create_symlink("../a/1.jpg", folders.path() / "b/0.jpg");
  const ImageFolder folder(folders.path());
  EXPECT_THAT(paths(folder), ElementsAre("a/1.jpg", "a/1.jpg", "b/1.jpg"));
  EXPECT_THAT(folder.labels(), ElementsAre(0, 1, 1));
  EXPECT_EQ(folder.open(1), testing::bytes_of("one"));
}

TEST(ImageFolder, RefusesLinksThatLeaveIt) {
  const ClassFolders outside({"a/secret.jpg"});
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const fs::path link = folders.path() / "b/0.jpg";
  const fs::path secret = outside.path() / "a/secret.jpg";
  fs::create_symlink(secret, link);
  EXPECT_EQ(refusal(folders),
      "/b/0.jpg: a link that leaves the folder, to " + secret.string() + "; copy the file here");
  // A folder whose name only begins alike is another.
  fs::remove(link);
  const fs::path neighbour = folders.path().string() + "x";
  fs::create_directory(neighbour);
  std::ofstream{neighbour / "1.jpg"}.close();
  fs::create_symlink(neighbour / "1.jpg", link);
  EXPECT_THAT(refusal(folders), HasSubstr("a link that leaves the folder"));
  fs::remove_all(neighbour);
}

TEST(ImageFolder, RefusesLinksThatLeadNowhere) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const fs::path link = folders.path() / "b/0.jpg";
  fs::create_symlink("absent.jpg", link);
  EXPECT_EQ(refusal(folders),
      "/b/0.jpg: a link that leads to no file: No such file or directory; remove it");
  fs::remove(link);
  fs::create_symlink("0.jpg", link);
  EXPECT_THAT(refusal(folders), HasSubstr("levels of symbolic links"));
}

TEST(ImageFolder, RefusesLinksToFolders) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  fs::create_directory_symlink("..", folders.path() / "b/loop");
  EXPECT_EQ(
      refusal(folders), "/b/loop: a link to a folder is not followed; put the folder itself there");
}

TEST(ImageFolder, RefusesWhatIsNoRegularFile) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  ASSERT_EQ(::mkfifo((folders.path() / "b/0.jpg").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folders), "/b/0.jpg: a regular file is needed");
}

TEST(ImageFolder, RefusesFilesBeyondItsLimit) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  fs::resize_file(folders.path() / "b/1.jpg", (256 << 20) + 1);  // a hole, no bytes on disk
  const ImageFolder folder(folders.path());
  EXPECT_EQ(refusal_to_read(folder, 1),
      ": the file has 268435457 bytes, more than the limit of 268435456");
}

TEST(ImageFolder, ShowsNamesThatAreNoTextEscaped) {
  const ClassFolders folders({"a/1.jpg", "b\n/\xff.jpg"});
  const ImageFolder folder(folders.path());
  EXPECT_THAT(folder.class_names(), ElementsAre("a", "b\n"));
  EXPECT_THAT(folder.name(1), EndsWith("/b\\n/\\xff.jpg"));
  fs::remove(folder.path(1));
  EXPECT_THAT(refusal_to_read(folder, 1), StartsWith(": is gone"));
}

/// Takes root's right to read everything from the calling thread, as long as it lives.
class AsNobody {
 public:
  AsNobody() { EXPECT_TRUE(::geteuid() != 0 || ::seteuid(65534) == 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  ~AsNobody() { EXPECT_TRUE(::getuid() != 0 || ::seteuid(0) == 0); }
};

TEST(ImageFolder, SaysWhichFileCannotBeRead) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  fs::permissions(folders.path(), fs::perms::all);
  const ImageFolder folder(folders.path());
  fs::permissions(folder.path(0), fs::perms::none);
  fs::permissions(folders.path() / "b", fs::perms::none);
  const AsNobody nobody;
  try {
    const ImageFolder again(folders.path());
    FAIL() << "nothing was thrown";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::permission_denied);
    EXPECT_THAT(error.what(), HasSubstr("list " + (folders.path() / "b").string()));
  }
  try {
    folder.open(0);
    FAIL() << "nothing was thrown";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::permission_denied);
    EXPECT_THAT(error.what(), HasSubstr("open " + folder.name(0)));
  }
}

TEST(ImageFolder, KeepsThePathsOfManyFilesApart) {
  constexpr int kFiles = 300;
  std::vector<std::string> names{"b/1.jpg"};
  for (int i = 0; i < kFiles; ++i) names.push_back("a/" + std::to_string(i) + ".jpg");
  const ClassFolders folders(names);
  const ImageFolder folder(folders.path());
  EXPECT_EQ(folder.size(), kFiles + 1);
  EXPECT_EQ(folder.path(0).filename(), "0.jpg");
  EXPECT_EQ(folder.path(kFiles - 1).filename(), "99.jpg");
  EXPECT_EQ(folder.label(kFiles - 1), 0);
  EXPECT_EQ(folder.label(kFiles), 1);
}

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
  EXPECT_EQ(refusal_of_parts(ClassFolders(
                {"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/a/1.jpg", "val/c/1.jpg"})),
      "/val: the classes must be those of train: b is missing");
  EXPECT_EQ(refusal_of_parts(ClassFolders({"train/a/1.jpg", "train/c/1.jpg", "test/a/1.jpg",
                "test/b/1.jpg", "test/c/1.jpg"})),
      "/test: the classes must be those of train: b is not there");
  EXPECT_EQ(refusal_of_parts(ClassFolders(
                {"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/b/1.jpg", "val/d/1.jpg"})),
      "/val: the classes must be those of train: d is not there");
  EXPECT_EQ(refusal_of_parts(ClassFolders(
                {"train/a/1.jpg", "train/b/1.jpg", "train/d/1.jpg", "val/a/1.jpg", "val/b/1.jpg"})),
      "/val: the classes must be those of train: d is missing");
}

TEST(ImageFolders, RefusesLayoutsWithTwoMeanings) {
  EXPECT_EQ(refusal_of_parts(ClassFolders({"train/a/1.jpg", "train/b/1.jpg", "plane/1.jpg"})),
      ": the folder plane is next to the folder train; a set has either parts (train, val, test) "
      "or classes");
  EXPECT_EQ(refusal_of_parts(ClassFolders({"train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg",
                "val/b/1.jpg", "valid/a/1.jpg", "valid/b/1.jpg"})),
      ": two folders to validate with: val and valid");
}

// What happens to a file between the scan and its reading.
TEST(ImageFolder, SeesThatAFileIsGone) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  const ImageFolder folder(folders.path());
  fs::remove(folder.path(0));
  EXPECT_EQ(refusal_to_read(folder, 0),
      ": is gone since the folder was scanned: No such file or directory; do not change a data set "
      "while it is read");
  fs::create_symlink(folder.path(1), folder.path(0));
  EXPECT_EQ(refusal_to_read(folder, 0),
      ": is gone since the folder was scanned: Too many levels of symbolic links; do not change a "
      "data set while it is read");
}

TEST(ImageFolder, SeesThatAFileWasChanged) {
  const ClassFolders folders({"a/1.jpg", "b/1.jpg"});
  folders.write("a/1.jpg", "before");
  const ImageFolder folder(folders.path());
  const auto time = fs::last_write_time(folder.path(0));
  folders.write("a/1.jpg", "after it");
  fs::last_write_time(folder.path(0), time);
  EXPECT_EQ(refusal_to_read(folder, 0),
      ": was changed since the folder was scanned: 6 bytes then, 8 now; do not change a data set "
      "while it is read");
  folders.write("a/1.jpg", "before");
  fs::last_write_time(folder.path(0), time + std::chrono::nanoseconds(1));
  EXPECT_THAT(refusal_to_read(folder, 0), HasSubstr("6 bytes then, 6 now"));
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
  EXPECT_THAT(refusal_to_read(folder, 0), HasSubstr("was changed since the folder"));
}

}  // namespace
}  // namespace lockstep::data
