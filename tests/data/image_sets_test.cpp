#include "lockstep/data/image_sets.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/cifar_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::cifar_record;
using lockstep::testing::message_of;
using lockstep::testing::TemporaryFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
          ": offset 0: no such file; name the folder in which the binary version of CIFAR-10 was "
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
      StartsWith("/absent/data_batch_1.bin: offset 0: "));
}

using lockstep::testing::gzip;
using lockstep::testing::idx_bytes;

TEST(Mnist, FindsItsFilesPlainOrCompressed) {
  const lockstep::testing::TemporaryFolder directory;
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
  const lockstep::testing::TemporaryFolder directory;
  const auto absent = directory.path() / "absent";
  EXPECT_EQ(lockstep::testing::message_of<DataError>([&] { fashion_mnist(absent); }),
      (absent / "train-images-idx3-ubyte").string() +
          "[.gz]: offset 0: no such file; apt install dataset-fashion-mnist, or name its folder");
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { mnist(absent, false); }),
      HasSubstr("t10k-images-idx3-ubyte[.gz]: offset 0: no such file"));
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("train-labels-idx1-ubyte[.gz]"));
}

TEST(Mnist, NamesTheFileThatIsWrong) {
  const lockstep::testing::TemporaryFolder directory;
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  directory.write("train-labels-idx1-ubyte", idx_bytes({1}, {10}));
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("label out of range (>= 10) at index 0: 10"));
  std::filesystem::remove(directory.path() / "train-images-idx3-ubyte");
  std::filesystem::create_symlink(
      "train-images-idx3-ubyte", directory.path() / "train-images-idx3-ubyte");
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { mnist(directory.path()); }),
      HasSubstr("Too many levels of symbolic links"));
}

}  // namespace

}  // namespace lockstep::data
