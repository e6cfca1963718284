#include "lockstep/data/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

#include "tests/formats/idx_bytes.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::data {
namespace {

using lockstep::testing::gzip;
using lockstep::testing::idx_bytes;
using ::testing::HasSubstr;

template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

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
  EXPECT_EQ(
      refusal([&] { fashion_mnist(absent); }),
      (absent / "train-images-idx3-ubyte").string() +
          "[.gz]: offset 0: no such file; apt install dataset-fashion-mnist, or name its folder");
  EXPECT_THAT(
      refusal([&] { mnist(absent, false); }),
      HasSubstr("t10k-images-idx3-ubyte[.gz]: offset 0: no such file"));
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  EXPECT_THAT(refusal([&] { mnist(directory.path()); }), HasSubstr("train-labels-idx1-ubyte[.gz]"));
}

TEST(Mnist, NamesTheFileThatIsWrong) {
  const lockstep::testing::TemporaryFolder directory;
  directory.write("train-images-idx3-ubyte", idx_bytes({1, 1, 1}, {1}));
  directory.write("train-labels-idx1-ubyte", idx_bytes({1}, {10}));
  EXPECT_THAT(
      refusal([&] { mnist(directory.path()); }),
      HasSubstr("label out of range (>= 10) at index 0: 10"));
  std::filesystem::remove(directory.path() / "train-images-idx3-ubyte");
  std::filesystem::create_symlink(
      "train-images-idx3-ubyte", directory.path() / "train-images-idx3-ubyte");
  EXPECT_THAT(
      refusal([&] { mnist(directory.path()); }), HasSubstr("Too many levels of symbolic links"));
}

}  // namespace
}  // namespace lockstep::data
