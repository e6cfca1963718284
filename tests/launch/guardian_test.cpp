#include "lockstep/launch/guardian.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/failing_call.h"

#include "lockstep/launch/child_process.h"

namespace lockstep::launch {
namespace {

constexpr int kMostMilliseconds = 60000;

/// Becomes a launcher whose child starts other processes; all write into `output`.
[[noreturn]] void be_a_launcher(int output, const std::string& script) {
  ::dup2(output, STDOUT_FILENO);
  ::close(output);
  const Guardian guardian;
  const ChildProcess child({.program = "/bin/sh",
      .arguments = {"-c", script},
      .environment = {"PATH=/usr/bin:/bin", "LOCKSTEP_GUARDIAN=another"},
      .cpus = {},
      .inherit_output = true,
      .guardian = &guardian});
  while (true) ::pause();
}

/// Reads what comes next; empty: all who could write have gone. Fails after a minute of silence.
std::string next_of(int pipe) {
  pollfd waited{pipe, POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, kMostMilliseconds), 1) << "a process is left";
  char bytes[100];
  const ssize_t size = waited.revents == 0 ? 0 : ::read(pipe, bytes, sizeof(bytes));
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

void expect_all_end_with_the_launcher(
    const std::string& script, const std::function<void()>& prepare = [] {}) {
  Pipe pipe = make_pipe();
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    prepare();
    be_a_launcher(pipe.writer.get(), script);
  }
  pipe.writer.reset();
  EXPECT_EQ(next_of(pipe.reader.get()), "started\n");
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_EQ(next_of(pipe.reader.get()), "");
}

// The child is under watch before it runs: the launcher does nothing for it after the start.
TEST(Guardian, KillsWhatTheChildOfAKilledLauncherStarted) {
  expect_all_end_with_the_launcher("sleep 600 & echo started; wait");
}

TEST(Guardian, FindsWhatWentToASessionOfItsOwn) {
  expect_all_end_with_the_launcher(
      "setsid sh -c 'setsid sleep 600 & echo started; wait' & sleep 600");
}

TEST(Guardian, ActsWithoutTheCallThatClosesManyDescriptors) {
  expect_all_end_with_the_launcher(
      "sleep 600 & echo started; wait", [] { testing::make_call_fail(SYS_close_range, ENOSYS); });
}

TEST(Guardian, HasAMarkOfItsOwn) {
  const Guardian one, other;
  EXPECT_NE(one.mark(), other.mark());
  EXPECT_EQ(one.mark().size(), 32U);
}

}  // namespace
}  // namespace lockstep::launch
