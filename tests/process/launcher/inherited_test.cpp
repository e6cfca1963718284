// What a shell, a service manager or a user's script may hand down to a launcher.

#include <gmock/gmock.h>

#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

TEST(LauncherInherits, ClosedStandardStreams) {
  const TemporaryFolder folder;
  for (const std::string closed : kClosedStreams) {
    for (const std::string ranks : {"1", "2"}) {
      const auto run = run_through_shell(
          closed, shell_ranks("echo out; echo err >&2; touch " + folder.file("$RANK"), "", ranks));
      EXPECT_EQ(run.code(), 0) << closed << run.err;
      EXPECT_EQ(std::to_string(folder.names().size()), ranks) << closed;
    }
    for (const std::string& name : folder.names())
      ASSERT_TRUE(remove(folder.file(name).c_str()) == 0);
  }
}

TEST(LauncherInherits, AnIgnoredChildSignal) {
  const std::string ignoring = "trap '' CHLD; ";
  run_through_shell("", shell_ranks("exit 0"), ignoring).with_code(0);
  run_through_shell("", shell_ranks("exit 7"), ignoring).with_code(7);
  const auto heirs =
      run_through_shell("", shell_ranks("grep SigIgn /proc/$$/status", "", "1"), ignoring);
  EXPECT_THAT(heirs.out, HasSubstr("SigIgn:\t0000000000000000"));
}

}  // namespace
}  // namespace lockstep::testing
