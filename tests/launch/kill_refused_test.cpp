// Processes that cannot be killed, as those of another user: `lockstep run -- sudo program`.

#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/failing_call.h"

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::launch {
namespace {

/// Runs a launcher that may kill nobody and returns its code: 128 + 14 should it not end. With it
/// go its children, by the death signal that the kernel sends them.
int code_of(const std::function<int()>& launcher) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(60);
    testing::make_call_fail(SYS_kill, EPERM);
    ::_exit(launcher());
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(KillRefused, AChildIsNotWaitedForWithoutEnd) {
  EXPECT_EQ(code_of([] {
    ChildOptions options;
    options.program = "/bin/sleep";
    options.arguments = {"600"};
    const ChildProcess child(options);
    return 7;
  }),
      7);
}

TEST(KillRefused, ARunEndsWithTheRankThatFailed) {
  EXPECT_EQ(code_of([] {
    LaunchOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "[ $RANK = 0 ] && exit 7; exec sleep 600"};
    options.workers = 2;
    return launch(options);
  }),
      7);
}

}  // namespace
}  // namespace lockstep::launch
