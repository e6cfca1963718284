#include "lockstep/launch/strays.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/launch/child_process.h"

namespace lockstep::launch {
namespace {

constexpr int kMostMilliseconds = 60000;

/// Becomes a launcher whose child starts another process; both write into `output`.
[[noreturn]] void be_a_launcher(int output) {
  ::dup2(output, STDOUT_FILENO);
  ::close(output);
  const Guardian guardian;
  const ChildProcess child({.program = "/bin/sh",
      .arguments = {"-c", "sleep 600 & echo started; wait"},
      .environment = {"PATH=/usr/bin:/bin"},
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

// The child is under watch before it runs: the launcher does nothing for it after the start.
TEST(Guardian, KillsWhatTheChildOfAKilledLauncherStarted) {
  Pipe pipe = make_pipe();
  const pid_t launcher = ::fork();
  if (launcher == 0) be_a_launcher(pipe.writer.get());
  pipe.writer.reset();
  EXPECT_EQ(next_of(pipe.reader.get()), "started\n");
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  EXPECT_EQ(next_of(pipe.reader.get()), "");
}

}  // namespace
}  // namespace lockstep::launch
