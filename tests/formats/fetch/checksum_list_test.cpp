#include "lockstep/formats/fetch/checksum_list.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ChecksumList : public ::testing::Test {
 protected:
  ChecksumList() {
    fs::create_directory(folder_.path() / "inner");
    put("b", "abc");
    put("inner/a", "");
    write_checksum_list(folder_.path());
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }

  std::string fault() const { return checksum_list_fault(folder_.path()).value_or("none"); }

  testing::TemporaryFolder folder_;
};

TEST_F(ChecksumList, IsWhatSha256sumWrites) {
  std::ifstream file(folder_.path() / "SHA256SUMS");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text,
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  inner/a\n");
}

TEST_F(ChecksumList, AgreesWithItsFolder) {
  EXPECT_EQ(fault(), "none");
  put("mine", "more");
  EXPECT_EQ(fault(), "none");
}

TEST_F(ChecksumList, SeesAChange) {
  put("b", "abd");
  EXPECT_THAT(fault(), HasSubstr("b has the SHA-256 a52d159f262b2c6ddb724a61840befc36eb30c88877a"));
  EXPECT_THAT(fault(), HasSubstr("and must have ba7816bf8f01cfea414140de5dae2223b00361a396177a9c"));
}

TEST_F(ChecksumList, SeesAMissingFile) {
  fs::remove(folder_.path() / "inner" / "a");
  EXPECT_THAT(fault(), HasSubstr("inner/a: offset 0: cannot be opened"));
}

TEST_F(ChecksumList, SeesThatItselfIsDamaged) {
  put("SHA256SUMS", "");
  EXPECT_EQ(fault(), "its list of checksums is empty");
  for (const char* line : {"abc  b", "zz", "\n"}) {
    put("SHA256SUMS", line);
    EXPECT_EQ(fault(), "its list of checksums is damaged") << line;
  }
  const std::string hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  put("SHA256SUMS", hash + "  ../b\n");
  EXPECT_THAT(fault(), HasSubstr("leaves the folder"));
  put("SHA256SUMS", hash + " *b\n");
  EXPECT_EQ(fault(), "its list of checksums is damaged");
  fs::remove(folder_.path() / "SHA256SUMS");
  EXPECT_EQ(fault(), "it has no list of checksums, SHA256SUMS");
}

}  // namespace
}  // namespace lockstep
