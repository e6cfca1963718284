#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/net/authentication.h"

namespace lockstep::net {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string secret_file(const testing::TemporaryFolder& folder, const std::string& text,
    fs::perms mode = fs::perms::owner_read) {
  const std::string path = folder.file("secret");
  fs::remove(path);
  std::ofstream(path) << text;
  fs::permissions(path, mode);
  return path;
}

std::string refusal_of_file(const std::string& path) {
  return testing::message_of<InvalidArgument>([&] { shared_secret(path); });
}

TEST(Secret, IsWhatTheFileHoldsWithoutTheEndOfItsLine) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(shared_secret(secret_file(folder, "0123456789abcdef\n")), "0123456789abcdef");
}

TEST(Secret, InAFileThatOthersMayReadIsRefused) {
  const testing::TemporaryFolder folder;
  const auto mode = fs::perms::owner_read;
  EXPECT_THAT(
      refusal_of_file(secret_file(folder, "0123456789abcdef", mode | fs::perms::group_read)),
      HasSubstr("may be read or written by other users; chmod 600"));
  EXPECT_THAT(
      refusal_of_file(secret_file(folder, "0123456789abcdef", mode | fs::perms::others_write)),
      HasSubstr("chmod 600"));
}

TEST(Secret, ThatIsShortOrNoFileIsRefused) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(refusal_of_file(secret_file(folder, "short\n")), HasSubstr("too few"));
  EXPECT_THAT(refusal_of_file(secret_file(folder, std::string(5000, 'x'))), HasSubstr("more than"));
  EXPECT_THAT(refusal_of_file(folder.str()), HasSubstr("is not a file"));
  EXPECT_THROW(shared_secret(folder.file("none")), std::system_error);
}

TEST(Secret, MayComeFromTheEnvironment) {
  ::setenv(kSecretVariable, "of the environment", 1);
  EXPECT_EQ(shared_secret(""), "of the environment");
  ::setenv(kSecretVariable, "short", 1);
  EXPECT_THAT(refusal_of_file(""), HasSubstr("LOCKSTEP_SECRET has 5 bytes"));
  ::unsetenv(kSecretVariable);
  EXPECT_EQ(shared_secret(""), "");
}

}  // namespace
}  // namespace lockstep::net
