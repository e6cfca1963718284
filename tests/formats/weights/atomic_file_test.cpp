#include "lockstep/formats/weights/atomic_file.h"

#include <system_error>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/formats/weights/expected_tensors.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(AtomicFile, IsThereOnlyWhenCommitted) {
  const testing::TemporaryFolder directory;
  const auto path = directory.path() / "a";
  {
    AtomicFile file(path);
    file.write("one");
    file.write(Bytes{'t', 'w', 'o'});
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit();
  }
  EXPECT_EQ(testing::file_bytes(path), (Bytes{'o', 'n', 'e', 't', 'w', 'o'}));
  EXPECT_EQ(files_in(directory.path()), 1U);
}

TEST(AtomicFile, LeavesNothingAndTheOldOneWithoutCommit) {
  const testing::TemporaryFolder directory;
  const auto path = directory.write("a", Bytes{1});
  { AtomicFile(path).write("two"); }
  EXPECT_EQ(testing::file_bytes(path), Bytes{1});
  EXPECT_EQ(files_in(directory.path()), 1U);
  AtomicFile again(path);
  again.write("x");
  again.commit();
  EXPECT_EQ(testing::file_bytes(path), Bytes{'x'});
}

TEST(AtomicFile, HasTheModeThatTheUserWants) {
  const testing::TemporaryFolder directory;
  const mode_t before = ::umask(027);
  AtomicFile file(directory.path() / "a");
  ::umask(before);
  file.commit();
  struct stat status {};
  ASSERT_EQ(::stat((directory.path() / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(AtomicFile, SaysWhatTheSystemRefuses) {
  const testing::TemporaryFolder directory;
  EXPECT_THROW(AtomicFile(directory.path() / "none" / "a"), std::system_error);
  AtomicFile file(directory.path());  // a directory cannot be replaced by a file
  EXPECT_THROW(file.commit(), std::system_error);
}

}  // namespace
}  // namespace lockstep
