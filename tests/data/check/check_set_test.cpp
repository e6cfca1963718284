#include "lockstep/data/check/check_set.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckSet : public ::testing::Test {
 protected:
  fs::path write(const std::string& set, const SyntheticOptions& options) const {
    write_synthetic_set(set, at("set"), options);
    return at("set");
  }

  fs::path at(const std::string& name) const { return directory_.path() / name; }

  /// Changes the byte at an offset.
  static void damage(const fs::path& path, std::int64_t offset, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.exceptions(std::ios::failbit | std::ios::badbit);
    file.seekp(offset);
    file.put(byte);
  }

  lockstep::testing::TemporaryFolder directory_;
};

TEST_F(CheckSet, CountsWhatAGoodSetHolds) {
  for (const char* set : {"mnist", "fashion-mnist", "cifar10"}) {
    fs::remove_all(at("set"));
    const auto report = check_set(set, write(set, {.train = 25, .test = 10}));
    EXPECT_THAT(report.bad, IsEmpty());
    ASSERT_THAT(report.parts, SizeIs(2));
    EXPECT_EQ(report.parts[0].name, "train");
    EXPECT_EQ(report.parts[0].images, 25);
    EXPECT_THAT(report.parts[0].per_class, ElementsAre(3, 3, 3, 3, 3, 2, 2, 2, 2, 2));
    EXPECT_EQ(report.parts[1].images, 10);
    EXPECT_FALSE(report.files);
  }
  fs::remove_all(at("set"));
  const auto report = check_set("cifar100", write("cifar100", {.train = 200, .test = 100}));
  EXPECT_EQ(report.smallest, (ImageSize{32, 32}));
  EXPECT_THAT(report.parts.at(0).per_class, ::testing::Each(2));
}

TEST_F(CheckSet, ReportsEachBadFileOfCifar) {
  const auto folder = write("cifar10", {.train = 50, .test = 10});
  damage(folder / "cifar-10-batches-bin" / "data_batch_2.bin", 0, 10);
  fs::remove(folder / "cifar-10-batches-bin" / "data_batch_4.bin");
  const auto report = check_set("cifar10", folder);
  ASSERT_THAT(report.bad, SizeIs(2));
  EXPECT_THAT(report.bad[0].name, ::testing::EndsWith("data_batch_2.bin"));
  EXPECT_EQ(report.bad[0].reason, "offset 0: label out of range (>= 10) of image 0: 10");
  EXPECT_THAT(report.bad[1].name, ::testing::EndsWith("data_batch_4.bin"));
  ASSERT_THAT(report.parts, SizeIs(1));
  EXPECT_EQ(report.parts[0].name, "test");
}

TEST_F(CheckSet, ReportsABadPartOfMnist) {
  const auto folder = write("mnist", {.train = 20, .test = 10});
  damage(folder / "t10k-labels-idx1-ubyte", 8, 99);
  const auto report = check_set("mnist", folder);
  ASSERT_THAT(report.bad, SizeIs(1));
  EXPECT_EQ(report.bad[0].name, (folder / "t10k-labels-idx1-ubyte").string());
  EXPECT_EQ(report.bad[0].reason, "offset 8: label out of range (>= 10) at index 0: 99");
  EXPECT_THAT(report.parts, SizeIs(1));
}

TEST_F(CheckSet, SaysThatNothingIsThere) {
  EXPECT_THAT(check_set("mnist", at("none")).bad, SizeIs(2));
  EXPECT_THAT(check_set("cifar100", at("none")).bad, SizeIs(2));
  EXPECT_THAT(check_set("images", at("none")).bad, SizeIs(1));
  EXPECT_THROW(check_set("svhn", at("none")), InvalidArgument);
}

TEST_F(CheckSet, DecodesEveryImage) {
  const auto folder =
      write("images", {.train = 32, .test = 4, .classes = 2, .size = ImageSize{40, 30}});
  std::ofstream(folder / "train" / "disc" / "notes.txt") << "x";
  fs::resize_file(folder / "train" / "ring" / "000001.jpg", 700);
  damage(folder / "train" / "disc" / "000014.png", 200, '\xff');
  std::ofstream(folder / "val" / "ring" / "0.jpg") << "<html>";
  for (const int workers : {1, 4}) {
    std::int64_t done = 0;
    const auto report = check_set(
        "images", folder, {.workers = workers, .progress = [&](std::int64_t now, std::int64_t of) {
                             EXPECT_EQ(now, ++done);
                             EXPECT_EQ(of, 37);
                           }});
    EXPECT_EQ(done, 37);
    ASSERT_THAT(report.bad, SizeIs(3));
    EXPECT_THAT(report.bad[0].name, ::testing::EndsWith("train/disc/000014.png"));
    EXPECT_THAT(report.bad[1].name, ::testing::EndsWith("train/ring/000001.jpg"));
    EXPECT_THAT(report.bad[2].name, ::testing::EndsWith("val/ring/0.jpg"));
    for (const auto& bad : report.bad) EXPECT_THAT(bad.reason, HasSubstr("offset"));
    EXPECT_EQ(report.parts[0].images, 30);
    EXPECT_THAT(report.parts[0].per_class, ElementsAre(15, 15));
    EXPECT_EQ(report.parts[1].images, 4);
    EXPECT_EQ(report.files->jpeg, 31);
    EXPECT_EQ(report.files->png, 3);
    EXPECT_EQ(report.files->other.count, 1);
    EXPECT_EQ(report.smallest, (ImageSize{40, 30}));
    EXPECT_EQ(report.largest, (ImageSize{40, 30}));
    EXPECT_EQ(report.files->repeated, 0);
  }
}

TEST_F(CheckSet, ListsBadFilesByName) {
  const auto folder = write("images", {.train = 4, .test = 4, .classes = 2});
  fs::copy(folder / "val", folder / "test", fs::copy_options::recursive);
  for (const char* part : {"train", "test"}) std::ofstream(folder / part / "disc" / "z.jpg") << "x";
  const auto report = check_set("images", folder);
  ASSERT_THAT(report.bad, SizeIs(2));
  EXPECT_THAT(report.bad[0].name, ::testing::EndsWith("test/disc/z.jpg"));
  EXPECT_THAT(report.bad[1].name, ::testing::EndsWith("train/disc/z.jpg"));
}

TEST_F(CheckSet, FindsImagesThatAreThereTwice) {
  const auto folder = write("images", {.train = 4, .test = 4, .classes = 2});
  fs::copy(folder / "train/disc/000000.jpg", folder / "train/ring/a.jpg");
  fs::copy(folder / "train/disc/000000.jpg", folder / "val/disc/a.jpg");
  const auto report = check_set("images", folder);
  EXPECT_THAT(report.bad, IsEmpty());
  EXPECT_EQ(report.files->repeated, 2);
  EXPECT_EQ(report.files->across_parts, 1);
}

TEST_F(CheckSet, KnowsTheSmallestAndTheLargest) {
  const auto report = check_set("images", write("images", {.train = 20, .test = 2, .classes = 2}));
  EXPECT_GE(report.smallest->height, 160);
  EXPECT_LT(report.smallest->height, report.largest->height);
  EXPECT_LE(report.largest->width, 480);
  EXPECT_THAT(report.class_names, ElementsAre("disc", "ring"));
}

TEST_F(CheckSet, TakesAFolderOfClassesAlone) {
  const auto folder = write("images", {.train = 20, .test = 2, .classes = 2});
  const auto report = check_set("images", folder / "train");
  ASSERT_THAT(report.parts, SizeIs(1));
  EXPECT_EQ(report.parts[0].name, "all");
  EXPECT_EQ(report.parts[0].images, 20);
}

}  // namespace
}  // namespace lockstep::data
