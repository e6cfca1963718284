#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/failing_call.h"

#include "lockstep/launch/child_process.h"

namespace lockstep::launch {
namespace {

pid_t start_sleeper() {
  const pid_t sleeper = ::fork();
  if (sleeper == 0) ::_exit(::pause());
  return sleeper;
}

/// Ends strays where `kill` gives this error (0: it does nothing), in a process that is killed
/// should that not return; returns whether those were reported that are left.
bool reports_what_is_left(unsigned error) {
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::alarm(60);
    const pid_t sleeper = start_sleeper(), known = start_sleeper();
    testing::make_call_fail(SYS_kill, error);
    const auto left = kill_strays({known}, std::chrono::milliseconds(50));
    for (const pid_t pid : {sleeper, known}) ::syscall(SYS_tgkill, pid, pid, SIGKILL);
    ::_exit(left == std::vector{sleeper} ? 0 : 1);
  }
  int status = 0;
  ::waitpid(launcher, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Strays, OfAnotherUserAreNotWaitedFor) { EXPECT_TRUE(reports_what_is_left(EPERM)); }

TEST(Strays, ThatTheKernelHoldsAreNotWaitedForWithoutEnd) { EXPECT_TRUE(reports_what_is_left(0)); }

TEST(Strays, EndWithThoseThatTheyStarted) {
  const Subreaper subreaper;
  const auto known = children();
  const pid_t stray = ::fork();
  if (stray == 0) {
    start_sleeper();
    ::_exit(::pause());
  }
  EXPECT_TRUE(kill_strays(known, std::chrono::minutes(1)).empty());
  EXPECT_EQ(children(), known);
}

}  // namespace
}  // namespace lockstep::launch
