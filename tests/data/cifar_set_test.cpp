#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/data/cifar.h"

#include "tests/formats/cifar_bytes.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::data {
namespace {

using lockstep::testing::cifar_record;
using lockstep::testing::TemporaryFolder;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing was thrown";
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
  EXPECT_EQ(
      refusal([&] { cifar10(directory.path()); }),
      (directory.path() / "data_batch_4.bin").string() +
          ": offset 0: no such file; name the folder in which the binary version of CIFAR-10 was "
          "unpacked");
  EXPECT_EQ(cifar10(directory.path(), false).size(), 1);
}

TEST(CifarSet, TellsTheFolderOfTheOtherSet) {
  const TemporaryFolder ten;
  write_cifar10(ten);
  EXPECT_THAT(
      refusal([&] { cifar100(ten.path()); }), EndsWith("the folder holds CIFAR-10, not CIFAR-100"));
  const TemporaryFolder hundred;
  std::filesystem::create_directory(hundred.path() / "cifar-100-binary");
  EXPECT_THAT(
      refusal([&] { cifar10(hundred.path()); }),
      EndsWith("the folder holds CIFAR-100, not CIFAR-10"));
}

TEST(CifarSet, TellsAFileOfTheOtherSet) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  const auto path = directory.write("data_batch_2.bin", cifar_record({1, 2}));
  EXPECT_EQ(
      refusal([&] { cifar10(directory.path()); }),
      path.string() +
          ": offset 0: the file has the size of 1 records of CIFAR-100, not of CIFAR-10; name it "
          "as "
          "that set");
}

TEST(CifarSet, TellsThePythonVersion) {
  const TemporaryFolder directory;
  directory.write("data_batch_1", cifar_record({1}));
  EXPECT_THAT(
      refusal([&] { cifar10(directory.path()); }),
      EndsWith("the folder holds the Python version of CIFAR-10; get the binary version"));
  std::filesystem::create_directory(directory.path() / "cifar-100-python");
  EXPECT_THAT(
      refusal([&] { cifar100(directory.path()); }),
      EndsWith("the folder holds the Python version of CIFAR-100; get the binary version"));
}

TEST(CifarSet, RefusesWhatIsNoFile) {
  const TemporaryFolder directory;
  write_cifar10(directory);
  const auto path = directory.path() / "test_batch.bin";
  std::filesystem::remove(path);
  std::filesystem::create_symlink("test_batch.bin", path);
  EXPECT_THAT(
      refusal([&] { cifar10(directory.path(), false); }),
      HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(
      refusal([&] { cifar10("/absent"); }), StartsWith("/absent/data_batch_1.bin: offset 0: "));
}

}  // namespace
}  // namespace lockstep::data
