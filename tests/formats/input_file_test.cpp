#include "lockstep/formats/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;

std::string opening_refusal(const std::filesystem::path& path) {
  return testing::message_of<DataError>([&] { InputFile file(path); });
}

TEST(InputFile, GivesTheBytesAndThenNothing) {
  const testing::TemporaryFolder directory;
  InputFile file(directory.write("file", Bytes{1, 2, 3, 4, 5}));
  Bytes bytes(3);
  EXPECT_EQ(file.read(bytes), 3U);
  EXPECT_EQ(bytes, (Bytes{1, 2, 3}));
  EXPECT_EQ(file.read(bytes), 2U);
  EXPECT_EQ(file.read(bytes), 0U);
}

TEST(InputFile, RefusesWhatIsMissing) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "absent";
  EXPECT_EQ(opening_refusal(path),
      path.string() + ": offset 0: cannot be opened: No such file or directory; check the path");
  const auto file = directory.write("file", Bytes{1});
  EXPECT_THAT(opening_refusal(file / "below"), HasSubstr("Not a directory"));
}

TEST(InputFile, RefusesADirectory) {
  const testing::TemporaryFolder directory;
  EXPECT_THAT(opening_refusal(directory.path()),
      HasSubstr(": offset 0: a regular file is needed, this is a directory"));
}

TEST(InputFile, RefusesAFifoWithoutWaitingForAWriter) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(opening_refusal(path), HasSubstr("this is a FIFO"));
}

TEST(InputFile, RefusesADevice) {
  EXPECT_THAT(opening_refusal("/dev/zero"), HasSubstr("this is a device"));
}

TEST(InputFile, RefusesALoopOfLinksButFollowsALink) {
  const testing::TemporaryFolder directory;
  std::filesystem::create_symlink("two", directory.path() / "one");
  std::filesystem::create_symlink("one", directory.path() / "two");
  EXPECT_THAT(
      opening_refusal(directory.path() / "one"), HasSubstr("Too many levels of symbolic links"));
  directory.write("file", Bytes{1});
  std::filesystem::create_symlink("file", directory.path() / "link");
  EXPECT_NO_THROW(InputFile(directory.path() / "link"));
}

}  // namespace
}  // namespace lockstep
