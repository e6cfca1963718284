#include "lockstep/formats/output_file.h"

#include <fstream>
#include <iterator>
#include <system_error>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OutputFile, WritesWhatItIsGiven) {
  const testing::TemporaryFolder directory;
  OutputFile file(directory.path() / "a");
  file.write(std::string("one"));
  file.write(std::vector<std::uint8_t>{' ', 't', 'w', 'o'});
  file.close();
  EXPECT_EQ(text_of(directory.path() / "a"), "one two");
}

TEST(OutputFile, NeverWritesOverWhatIsThere) {
  const testing::TemporaryFolder directory;
  const std::vector<std::uint8_t> bytes{'o', 'l', 'd'};
  const auto old = directory.write("old", bytes);
  const auto link = directory.path() / "link";
  fs::create_symlink(directory.path() / "elsewhere", link);
  for (const auto& path : {old, link, directory.path() / "missing" / "a"}) {
    EXPECT_THROW(OutputFile{path}, std::system_error) << path;
  }
  EXPECT_EQ(text_of(old), "old");
  EXPECT_FALSE(fs::exists(directory.path() / "elsewhere"));
}

TEST(OutputFile, SaysThatNoMoreCanBeWritten) {
  const testing::TemporaryFolder directory;
  const testing::FileSizeLimit limit(10);
  OutputFile file(directory.path() / "a");
  file.write(std::string(10, 'a'));
  EXPECT_THROW(file.write(std::string("b")), std::system_error);
}

}  // namespace
}  // namespace lockstep
