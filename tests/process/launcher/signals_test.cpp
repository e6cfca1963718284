#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/process/command.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Starts two ranks that say their process ids, and those of what they started, and then wait.
class Waiting {
 public:
  explicit Waiting(const std::string& before, int lines = 2)
      : run_(shell_ranks(before + "sleep 600 & echo pid $$ pid $!; wait")),
        pids_(numbers_after("pid", run_.wait_for_lines(lines))) {}

  Command& run() { return run_; }
  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  Command run_;
  std::vector<pid_t> pids_;
};

TEST(LauncherSignals, EndAllRanks) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Waiting waiting("");
    ASSERT_EQ(waiting.pids().size(), 4U);
    waiting.run().signal(signal);
    // A shell starts background children with SIGINT and SIGQUIT ignored; the launcher ends them
    // all the same.
    EXPECT_EQ(waiting.run().wait().status.code, 128 + signal);
    EXPECT_TRUE(all_end(waiting.pids()));
  }
}

TEST(LauncherSignals, ASecondOneKillsAtOnce) {
  const std::string script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done";
  Command deaf(shell_ranks(script, "--grace-period 600"));
  deaf.wait_for_lines(2);
  deaf.signal(SIGTERM);
  deaf.wait_for_lines(4);
  deaf.signal(SIGINT);
  const auto run = deaf.wait();
  EXPECT_EQ(run.status.code, 128 + SIGTERM);
  EXPECT_THAT(run.out, HasSubstr("asked"));
  EXPECT_THAT(run.err, HasSubstr("killing all ranks"));
}

TEST(LauncherSignals, TheFirstOneLetsRanksSaveWhatWouldBeLost) {
  const TemporaryFolder folder;
  Command run(shell_ranks("[ $RANK = 0 ] && exec " + *environment("LOCKSTEP_BINARY_DIR") +
                              "/progress_probe 0 " + folder.file("saved") + "; while [ ! -e " +
                              folder.file("fails") + " ]; do sleep 0.01; done; exit 9",
      "--verbose --max-restarts 3"));
  run.wait_for_lines(1);
  std::ofstream(folder.file("fails")) << "now";
  run.wait_until([&] { return run.err().find("; ending the other rank") != std::string::npos; });
  run.signal(SIGTERM);
  run.wait_until([&] { return run.err().find("lockstep: SIGTERM") != std::string::npos; });
  std::ofstream(folder.file("saved")) << "yes";
  const auto end = run.wait();
  EXPECT_THAT(end.out, HasSubstr("saved"));
  EXPECT_EQ(end.code(), 128 + SIGTERM);
  EXPECT_THAT(end.err, HasSubstr("not restarted: SIGTERM"));
}

TEST(LauncherSignals, TheGracePeriodEnds) {
  const std::string script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
  Command deaf(shell_ranks(script, "--grace-period 0.1"));
  deaf.wait_for_lines(2);
  deaf.signal(SIGTERM);
  const auto run = deaf.wait();
  EXPECT_EQ(run.status.code, 128 + SIGTERM);
  EXPECT_THAT(run.err, HasSubstr("the grace period is over"));
}

TEST(LauncherSignals, RanksThatSavedTheirWorkDecideTheCode) {
  const auto code_when = [](const std::string& last_words) {
    Command run(
        shell_ranks("trap '" + last_words + "' TERM; echo ready; while :; do sleep 0.01; done"));
    run.wait_for_lines(2);
    run.signal(SIGTERM);
    return run.wait().status.code;
  };
  EXPECT_EQ(code_when("exit 75"), 75);
  EXPECT_EQ(code_when("exit 0"), 0);
  EXPECT_EQ(code_when("[ $RANK = 0 ] && exit 0; exit 75"), 75);
  EXPECT_EQ(code_when("[ $RANK = 0 ] && exit 1; exit 75"), 128 + SIGTERM);
}

TEST(LauncherSignals, KillingTheLauncherLeavesNothing) {
  for (const int signal : {SIGKILL, SIGUSR1}) {
    Waiting waiting("setsid sleep 600 & echo pid $!; ", 4);
    ASSERT_EQ(waiting.pids().size(), 6U);
    waiting.run().signal(signal);
    EXPECT_EQ(waiting.run().wait().status.signal, signal);
    EXPECT_TRUE(all_end(waiting.pids()));
  }
}

/// Lists the children of a process with one thread.
std::vector<pid_t> children_of(pid_t pid) {
  const std::string number = std::to_string(pid);
  std::ifstream file("/proc/" + number + "/task/" + number + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

TEST(LauncherSignals, RanksDieWithTheLauncherWithoutItsGuardianToo) {
  Command running(shell_ranks("echo pid $$; exec sleep 600"));
  const auto ranks = numbers_after("pid", running.wait_for_lines(2));
  ASSERT_EQ(ranks.size(), 2U);
  for (const pid_t child : children_of(running.pid())) {
    if (std::count(ranks.begin(), ranks.end(), child) == 0) ::kill(child, SIGKILL);
  }
  running.signal(SIGKILL);
  EXPECT_TRUE(all_end(ranks));
}

TEST(LauncherSignals, WhatRanksLeaveBehindEndsWithTheRun) {
  Command running(shell_ranks("sleep 600 & echo pid $!; setsid sleep 600 & echo pid $!"));
  const auto run = running.wait().with_code(0);
  const auto pids = numbers_after("pid", run.out);
  EXPECT_EQ(pids.size(), 4U);
  EXPECT_TRUE(all_end(pids));
}

TEST(LauncherSignals, AreNotTakenFromTheRanksNames) {
  const auto run = run_command(shell_ranks("trap - TERM; exit 0", "--signals-to-handle SIGUSR1"));
  EXPECT_EQ(run.code(), 0);
  EXPECT_THAT(run.err, Not(HasSubstr("failed")));
}

}  // namespace
}  // namespace lockstep::testing
