#include "lockstep/core/error.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/support/message_of.h"

#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

TEST(Error, CheckThrowsTheJoinedMessage) {
  const auto call = [] { check(false, "broadcast: root must be a rank: ", 7, " of ", 2); };
  EXPECT_EQ(testing::message_of<InvalidArgument>(call), "broadcast: root must be a rank: 7 of 2");
  EXPECT_NO_THROW(check(true, "unused"));
}

TEST(Error, OfTheSystemSaysWhatCannotBeDone) {
  const auto message = [](const char* action, const char* object) {
    errno = ENOENT;
    return testing::message_of<std::system_error>([&] { throw_errno(action, object); });
  };
  EXPECT_EQ(message("make the folder", "x"), "cannot make the folder x: No such file or directory");
  EXPECT_EQ(message("hosts: fork", ""), "hosts: cannot fork: No such file or directory");
  EXPECT_EQ(
      message("fetch: cannot write", "x"), "fetch: cannot write x: No such file or directory");
}

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(exit_code_of(InvalidArgument("")), ExitCode::kUsage);
  EXPECT_EQ(exit_code_of(DataError("")), ExitCode::kData);
  EXPECT_EQ(exit_code_of(TimeoutError("")), ExitCode::kPeersLost);
  EXPECT_EQ(exit_code_of(std::bad_alloc()), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(DivergedError("")), ExitCode::kDiverged);
  EXPECT_EQ(
      exit_code_of(std::system_error(ENOSPC, std::generic_category())), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(std::runtime_error("")), ExitCode::kUnclassified);
}

}  // namespace
}  // namespace lockstep
