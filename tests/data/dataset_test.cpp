#include "lockstep/data/dataset.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/class_folders.h"
#include "tests/formats/cifar_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::cifar_record;
using lockstep::testing::gzip;
using lockstep::testing::idx_bytes;
using lockstep::testing::message_of;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

InMemoryImages::Parts three_images() {
  return {.name = "three",
      .shape = {.channels = 1, .height = 1, .width = 2},
      .classes = 5,
      .pixels = {0, 1, 10, 11, 20, 21},
      .labels = {4, 2, 0}};
}

TEST(InMemoryImages, GivesPixelsAndLabels) {
  const InMemoryImages images(three_images());
  EXPECT_EQ(images.size(), 3);
  EXPECT_EQ(images.name(), "three");
  EXPECT_EQ(images.classes(), 5);
  EXPECT_EQ(images.pixels(1)[0], 10);
  EXPECT_EQ(images.pixels(2)[1], 21);
  EXPECT_EQ(images.label(0), 4);
}

TEST(InMemoryImages, RepeatsWithoutCopying) {
  const InMemoryImages images(three_images());
  const auto longer = images.repeated(2).repeated(2);
  EXPECT_EQ(longer.size(), 12);
  EXPECT_EQ(images.size(), 3);
  for (std::int64_t i = 0; i < longer.size(); ++i) {
    EXPECT_EQ(longer.pixels(i), images.pixels(i % 3)) << i;
    EXPECT_EQ(longer.label(i), images.label(i % 3)) << i;
  }
  EXPECT_THROW(images.repeated(0), InvalidArgument);
  EXPECT_THROW(images.repeated(std::int64_t{1} << 62), InvalidArgument);
}

TEST(InMemoryImages, RefusesPartsThatDoNotFit) {
  auto parts = three_images();
  parts.pixels.pop_back();
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.classes = 4;
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.shape.height = 0;
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
  parts = three_images();
  parts.labels.clear();
  parts.pixels.clear();
  EXPECT_THROW(InMemoryImages{parts}, InvalidArgument);
}

TEST(Mock, IsFixedByItsOptions) {
  const MockOptions options{
      .size = 20, .shape = {.channels = 3, .height = 4, .width = 5}, .classes = 7, .seed = 9};
  const auto one = mock(options);
  const auto two = mock(options);
  auto other_options = options;
  other_options.seed = 10;
  const auto other = mock(other_options);
  const auto pixels = static_cast<std::size_t>(options.size * options.shape.elements());
  const std::vector<std::uint8_t> first(one.pixels(0), one.pixels(0) + pixels);
  EXPECT_EQ(first, std::vector<std::uint8_t>(two.pixels(0), two.pixels(0) + pixels));
  EXPECT_NE(first, std::vector<std::uint8_t>(other.pixels(0), other.pixels(0) + pixels));
  EXPECT_EQ(one.shape(), options.shape);
  for (std::int64_t i = 0; i < one.size(); ++i) EXPECT_LT(one.label(i), 7);
}

TEST(Mock, RefusesWhatCannotBe) {
  EXPECT_THROW(mock({.size = 0}), InvalidArgument);
  EXPECT_THROW(mock({.classes = 257}), InvalidArgument);
  EXPECT_THROW(mock({.shape = {.channels = 1, .height = 0, .width = 1}}), InvalidArgument);
}

/// Writes the six files of CIFAR-10, one image each; a batch's number is its label.
void write_cifar10(const TemporaryFolder& directory, const std::string& folder = "") {
  std::filesystem::create_directories(directory.path() / folder);
  for (int batch = 1; batch <= 5; ++batch) {
    const auto label = static_cast<std::uint8_t>(batch);
    directory.write(folder + "data_batch_" + std::to_string(batch) + ".bin", cifar_record({label}));
  }
  directory.write(folder + "test_batch.bin", cifar_record({9}));
}

TEST(CifarSet, OfTenClassesJoinsItsBatches) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  const auto train = cifar10(directory.path());
  EXPECT_EQ(train.name(), "cifar10");
  EXPECT_EQ(train.size(), 5);
  EXPECT_EQ(train.classes(), 10);
  EXPECT_EQ(train.shape(), (ImageShape{.channels = 3, .height = 32, .width = 32}));
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(train.label(i), i + 1);
  EXPECT_EQ(train.pixels(4)[1], 100);
  const auto test = cifar10(directory.path(), false);
  EXPECT_EQ(test.size(), 1);
  EXPECT_EQ(test.label(0), 9);
}

TEST(CifarSet, OfAHundredClassesHasFineLabels) {
  const TemporaryFolder directory;
  directory.write("train.bin", cifar_record({1, 42}));
  directory.write("test.bin", cifar_record({2, 77}));
  EXPECT_EQ(cifar100(directory.path()).name(), "cifar100");
  EXPECT_EQ(cifar100(directory.path()).label(0), 42);
  EXPECT_EQ(cifar100(directory.path()).classes(), 100);
  EXPECT_EQ(cifar100(directory.path(), false).label(0), 77);
}

TEST(CifarSet, IsFoundInTheFolderOfItsArchive) {
  const TemporaryFolder directory;
  write_cifar10(directory, "cifar-10-batches-bin/");
  std::filesystem::create_directory(directory.path() / "cifar-100-binary");
  directory.write("cifar-100-binary/train.bin", cifar_record({1, 42}));
  EXPECT_EQ(cifar10(directory.path()).size(), 5);
  EXPECT_EQ(cifar10(directory.path() / "cifar-10-batches-bin").size(), 5);
  EXPECT_EQ(cifar100(directory.path()).label(0), 42);
}

TEST(CifarSet, NamesABatchThatIsMissing) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  std::filesystem::remove(directory.path() / "data_batch_4.bin");
  EXPECT_EQ(message_of<DataError>([&] { cifar10(directory.path()); }),
      (directory.path() / "data_batch_4.bin").string() +
          ": no such file; name the folder in which the binary version of CIFAR-10 was "
          "unpacked");
  EXPECT_EQ(cifar10(directory.path(), false).size(), 1);
}

TEST(CifarSet, TellsTheFolderOfTheOtherSet) {
  const TemporaryFolder ten;
  write_cifar10(ten);
  EXPECT_THAT(message_of<DataError>([&] { cifar100(ten.path()); }),
      EndsWith("the folder holds CIFAR-10, not CIFAR-100"));
  const TemporaryFolder hundred;
  std::filesystem::create_directory(hundred.path() / "cifar-100-binary");
  EXPECT_THAT(message_of<DataError>([&] { cifar10(hundred.path()); }),
      EndsWith("the folder holds CIFAR-100, not CIFAR-10"));
}

TEST(CifarSet, TellsAFileOfTheOtherSet) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  const auto path = directory.write("data_batch_2.bin", cifar_record({1, 2}));
  EXPECT_EQ(message_of<DataError>([&] { cifar10(directory.path()); }),
      path.string() +
          ": offset 0: the file has the size of 1 records of CIFAR-100, not of CIFAR-10; use the "
          "name of that set");
}

TEST(CifarSet, TellsThePythonVersion) {
  const TemporaryFolder directory;
  directory.write("data_batch_1", cifar_record({1}));
  EXPECT_THAT(message_of<DataError>([&] { cifar10(directory.path()); }),
      EndsWith("the folder holds the Python version of CIFAR-10; get the binary version"));
  std::filesystem::create_directory(directory.path() / "cifar-100-python");
  EXPECT_THAT(message_of<DataError>([&] { cifar100(directory.path()); }),
      EndsWith("the folder holds the Python version of CIFAR-100; get the binary version"));
}

TEST(CifarSet, RefusesWhatIsNoFile) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  const auto path = directory.path() / "test_batch.bin";
  std::filesystem::remove(path);
  std::filesystem::create_symlink("test_batch.bin", path);
  EXPECT_THAT(message_of<DataError>([&] { cifar10(directory.path(), false); }),
      HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(message_of<DataError>([&] { cifar10("/absent"); }),
      StartsWith("/absent/data_batch_1.bin: no such file; "));
}

TEST(Mnist, FindsItsFilesPlainOrCompressed) {
  const TemporaryFolder directory;
  directory.write("train-images-idx3-ubyte", idx_bytes({2, 1, 2}, {1, 2, 3, 4}));
  directory.write("train-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, {7, 9})));
  directory.write("t10k-images-idx3-ubyte.gz", gzip(idx_bytes({1, 1, 2}, {5, 6})));
  directory.write("t10k-labels-idx1-ubyte", idx_bytes({1}, {3}));
  const auto train = mnist(directory.path());
  EXPECT_EQ(train.name(), "mnist");
  EXPECT_EQ(train.size(), 2);
  EXPECT_EQ(train.classes(), 10);
  EXPECT_EQ(train.shape(), (ImageShape{.channels = 1, .height = 1, .width = 2}));
  EXPECT_EQ(train.label(1), 9);
  EXPECT_EQ(train.pixels(1)[0], 3);
  const auto test = fashion_mnist(directory.path(), false);
  EXPECT_EQ(test.name(), "fashion-mnist");
  EXPECT_EQ(test.label(0), 3);
}

TEST(Mnist, SaysWhatToDoWhenItsFilesAreMissing) {
  const TemporaryFolder directory;
  const auto absent = directory.path() / "absent";
  EXPECT_EQ(message_of<DataError>([&] { fashion_mnist(absent); }),
      (absent / "train-images-idx3-ubyte").string() +
          "[.gz]: no such file; apt install dataset-fashion-mnist, or name its folder");
  EXPECT_THAT(message_of<DataError>([&] { mnist(absent, false); }),
      HasSubstr("t10k-images-idx3-ubyte[.gz]: no such file"));
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  EXPECT_THAT(message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("train-labels-idx1-ubyte[.gz]"));
}

TEST(Mnist, NamesTheFileThatIsWrong) {
  const TemporaryFolder directory;
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  directory.write("train-labels-idx1-ubyte", idx_bytes({1}, {10}));
  EXPECT_THAT(message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("label out of range (>= 10) at index 0: 10"));
  std::filesystem::remove(directory.path() / "train-images-idx3-ubyte");
  std::filesystem::create_symlink(
      "train-images-idx3-ubyte", directory.path() / "train-images-idx3-ubyte");
  EXPECT_THAT(message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("Too many levels of symbolic links"));
}

TEST(ClassNames, OfFoldersAreTheirNames) {
  const testing::ClassFolders folders({"train/dog/1.png", "train/cat/1.png"});
  EXPECT_THAT(class_names("images", folders.path()), ElementsAre("cat", "dog"));
}

TEST(ClassNames, OfCifarAreThoseOfItsFileWhereTheArchiveWasUnpacked) {
  const testing::ClassFolders folders({});
  EXPECT_THAT(class_names("cifar10", folders.path()), IsEmpty());
  folders.write("cifar-10-batches-bin/batches.meta.txt", "airplane\r\nautomobile\n\n");
  folders.write("fine_label_names.txt", "apple\nbear\n");
  EXPECT_THAT(class_names("cifar10", folders.path()), ElementsAre("airplane", "automobile"));
  EXPECT_THAT(class_names("cifar100", folders.path()), ElementsAre("apple", "bear"));
}

TEST(ClassNames, OfTheMnistsAreThoseOfTheirAuthors) {
  EXPECT_EQ(class_names("mnist", "").at(7), "7");
  EXPECT_EQ(class_names("fashion-mnist", "").at(9), "Ankle boot");
  EXPECT_THAT(class_names("mock", ""), IsEmpty());
}

}  // namespace
}  // namespace lockstep::data
