#include "lockstep/launch/child_process.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "tests/support/failing_call.h"

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::launch {
namespace {

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  options.environment = {"PATH=/usr/bin:/bin", "WORD=given"};
  return options;
}

ExitStatus end_of(const ChildProcess& child) {
  pollfd waited{child.descriptor(), POLLIN, 0};
  ::poll(&waited, 1, 60000);
  return child.status().value_or(ExitStatus{.code = -1});
}

std::string all_of(const FileDescriptor& pipe) {
  std::string text;
  char bytes[4096];
  pollfd waited{pipe.get(), POLLIN, 0};
  while (::poll(&waited, 1, 60000) == 1) {
    const ssize_t size = ::read(pipe.get(), bytes, sizeof(bytes));
    if (size <= 0) break;
    text.append(bytes, static_cast<std::size_t>(size));
  }
  return text;
}

TEST(ChildProcess, HasItsEnvironmentAndPipes) {
  ChildProcess child(shell("echo out $WORD; echo err >&2; exit 7"));
  EXPECT_EQ(all_of(child.take_output()), "out given\n");
  EXPECT_EQ(all_of(child.take_errors()), "err\n");
  EXPECT_EQ(end_of(child).code, 7);
  EXPECT_EQ(child.status()->code, 7) << "the end can be asked for again";
}

TEST(ChildProcess, TellsTheSignalThatEndedIt) {
  ChildProcess child(shell("kill -SEGV $$"));
  EXPECT_EQ(end_of(child).signal, SIGSEGV);
}

TEST(ChildProcess, LeadsAGroupThatIsSignalledWhole) {
  ChildProcess child(shell("sleep 600 & echo $!; wait"));
  char bytes[32] = {};
  const FileDescriptor output = child.take_output();
  pollfd waited{output.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waited, 1, 60000), 1);
  ASSERT_GT(::read(output.get(), bytes, sizeof(bytes) - 1), 0);
  EXPECT_FALSE(child.status());
  EXPECT_EQ(::getpgid(std::atoi(bytes)), child.pid());
  child.signal_group(SIGTERM);
  EXPECT_EQ(end_of(child).signal, SIGTERM);
}

TEST(ChildProcess, IsGoneWithItsOwner) {
  pid_t pid = 0;
  {
    const ChildProcess child(shell("exec sleep 600"));
    pid = child.pid();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

/// Counts what every child of this test inherits from its surroundings.
int descriptors_of_a_plain_child() {
  std::FILE* plain = ::popen("ls /proc/self/fd | wc -l", "r");
  int count = 0;
  if (std::fscanf(plain, "%d", &count) != 1) count = -1;
  ::pclose(plain);
  return count;
}

TEST(ChildProcess, InheritsNoDescriptors) {
  const int plain = descriptors_of_a_plain_child();
  ChildProcess other(shell("exec sleep 600"));
  ChildProcess child(shell("ls /proc/self/fd | wc -l"));
  EXPECT_EQ(std::stoi(all_of(child.take_output())), plain);
}

// Of a process that runs a program by now.
std::string status_of(pid_t pid, const std::string& program) {
  std::string text;
  while (text.find(concat("Name:\t", program)) == std::string::npos) {
    std::ifstream file(concat("/proc/", pid, "/status"));
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

TEST(ChildProcess, StartsWithDefaultSignals) {
  const auto before = ::signal(SIGPIPE, SIG_IGN), child_before = ::signal(SIGCHLD, SIG_IGN);
  sigset_t blocked, mask;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &mask);
  ChildOptions options = shell("");
  options.program = "/bin/sleep";  // a shell would set signals of its own
  options.arguments = {"60"};
  ChildProcess child(options);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::signal(SIGPIPE, before);
  ::signal(SIGCHLD, child_before);
  const std::string text = status_of(child.pid(), "sleep");
  EXPECT_NE(text.find("SigBlk:\t0000000000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("SigIgn:\t0000000000000000"), std::string::npos) << text;
}

TEST(ChildProcess, HoldsTheSignalsThatItIsTold) {
  ChildOptions options = shell("");
  options.program = "/bin/grep";  // a shell would let them in
  options.arguments = {"SigBlk", "/proc/self/status"};
  options.held_signals = {SIGTERM};
  ChildProcess child(options);
  EXPECT_EQ(all_of(child.take_output()), "SigBlk:\t0000000000004000\n");
}

TEST(ChildProcess, IsPinnedToItsCores) {
  ChildOptions options = shell("grep Cpus_allowed_list /proc/self/status");
  options.cpus = {available_cpus().back()};
  ChildProcess child(options);
  const std::string text = all_of(child.take_output());
  EXPECT_NE(text.find(concat("\t", options.cpus[0], "\n")), std::string::npos) << text;
}

TEST(ChildProcess, NamesAProgramThatCannotBeExecuted) {
  ChildOptions options = shell("");
  options.program = "/no/such/program";
  try {
    const ChildProcess child(options);
    FAIL() << "it was started";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("/no/such/program"), std::string::npos);
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no zombie is left";
}

pid_t start_sleeper() {
  const pid_t sleeper = ::fork();
  if (sleeper == 0) ::_exit(::pause());
  return sleeper;
}

/// Runs a launcher in a process of its own and returns its code: 128 + 14 should it not end. With
/// it go its children, by the death signal that the kernel sends them.
int code_of(const std::function<int()>& launcher) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(60);
    ::_exit(launcher());
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Ends strays where `kill` gives this error (0: it does nothing), and returns whether those were
/// reported that are left.
bool reports_what_is_left(unsigned error) {
  return code_of([error] {
    const pid_t sleeper = start_sleeper(), known = start_sleeper();
    testing::make_call_fail(SYS_kill, error);
    const auto left = kill_strays({known}, std::chrono::milliseconds(50));
    for (const pid_t pid : {sleeper, known}) ::syscall(SYS_tgkill, pid, pid, SIGKILL);
    return left == std::vector{sleeper} ? 0 : 1;
  }) == 0;
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

// Processes that cannot be killed, as those of another user: `lockstep run -- sudo program`.

TEST(KillRefused, AChildIsNotWaitedForWithoutEnd) {
  EXPECT_EQ(code_of([] {
    testing::make_call_fail(SYS_kill, EPERM);
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
    testing::make_call_fail(SYS_kill, EPERM);
    LaunchOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "[ $RANK = 0 ] && exit 7; exec sleep 600"};
    options.workers = 2;
    return launch(options);
  }),
      7);
}

// What the guardian of a launcher that is killed does.

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
