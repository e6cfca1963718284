#include "lockstep/formats/checksum.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// The examples of FIPS 180-2, appendix B.
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kOfNothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kOfAMillion =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string sha256(const std::string& text) {
  const auto bytes = bytes_of(text);
  MemorySource source(bytes, "text");
  return sha256_of(source);
}

TEST(Checksum, IsThatOfTheStandardsExamples) {
  EXPECT_EQ(sha256("abc"), kOfAbc);
  EXPECT_EQ(sha256(""), kOfNothing);
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), kOfAMillion);
}

TEST(Checksum, DoesNotDependOnThePieces) {
  Sha256 digest;
  for (int i = 0; i < 1000; ++i) digest.update(bytes_of(std::string(1000, 'a')));
  EXPECT_EQ(digest.finish(), kOfAMillion);
}

TEST(Checksum, ReadsFilesOfSeveralPieces) {
  const testing::TemporaryFolder directory;
  const auto several = bytes_of(std::string(3 * 1024 * 1024 + 1, 'b'));
  EXPECT_EQ(sha256_of_file(directory.write("abc", bytes_of("abc"))), kOfAbc);
  EXPECT_EQ(sha256_of_file(directory.write("several", several)),
      sha256({several.begin(), several.end()}));
  EXPECT_THROW(sha256_of_file(directory.path() / "missing"), DataError);
}

TEST(Checksum, KnowsWhatOneLooksLike) {
  EXPECT_TRUE(is_sha256(kOfAbc));
  std::string capital = kOfAbc;
  capital[0] = 'B';
  EXPECT_FALSE(is_sha256(capital));
  EXPECT_FALSE(is_sha256(std::string(kOfAbc) + "0"));
  EXPECT_FALSE(is_sha256(""));
}

}  // namespace
}  // namespace lockstep
