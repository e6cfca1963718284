// How hosts within this machine end, by themselves, by signals and by drills, and start again.

#include <cstdio>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/process/command.h"
#include "tests/process/launcher/made_hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

double seconds_of_children() {
  rusage use{};
  ::getrusage(RUSAGE_CHILDREN, &use);
  const auto seconds = [](const timeval& time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// What a shell's `times` wrote as the seconds that it has computed itself; 0 if nothing was
// written.
double seconds_in(const std::string& file) {
  double minutes = 0, seconds = 0;
  std::sscanf(contents_so_far(file).c_str(), "%lfm%lf", &minutes, &seconds);
  return 60 * minutes + seconds;
}

TEST_F(MadeHosts, TheOthersMaySaveWhenOneFails) {
  const TemporaryFolder folder;
  const std::string ready = folder.file("ready"), saved = folder.file("saved");
  const auto run =
      run_command(two("if [ $PET_NODE_RANK = 1 ]; then while [ ! -e " + ready +
                      " ]; do sleep 0.01; done; exit 7; fi; trap 'sleep 1; echo > " + saved +
                      "; exit 0' TERM; echo > " + ready + "; while :; do sleep 0.01; done"))
          .with_code(7);
  EXPECT_THAT(run.err, HasSubstr("the run failed: host 1 exited with code 7"));
  EXPECT_EQ(contents(saved), "\n");
}

TEST_F(MadeHosts, GiveTheirCodeWhereTheChildSignalWasIgnored) {
  run_through_shell("", two("exit 7"), "trap '' CHLD; ").with_code(7);
}

TEST_F(MadeHosts, AHostThatLostTheOthersIsNotTheCause) {
  const TemporaryFolder folder;
  const std::string lost = folder.file("lost");
  run_command(two("if [ $PET_NODE_RANK = 0 ]; then touch " + lost + "; exit 5; fi; while [ ! -e " +
                  lost + " ]; do sleep 0.01; done; exit 9"))
      .with_code(9);
}

TEST_F(MadeHosts, NothingIsLeftWhenTheLauncherIsKilled) {
  const std::string mark = "LOCKSTEP_TEST_MARK=" + std::to_string(::getpid());
  Command run(two("setsid sleep 600 & sleep 600 & echo ready; wait"), {mark});
  run.wait_for_lines(2);
  const auto pids = processes_with_variable(mark);
  ASSERT_GE(pids.size(), 9U);  // ours, and on each host two of ours, a shell, two sleeps
  run.signal(SIGKILL);
  EXPECT_TRUE(all_end(pids));
  run.wait();
}

TEST_F(MadeHosts, NothingIsLeftOfACommandThatLeftProcesses) {
  const std::string mark = "LOCKSTEP_TEST_MARK=left-" + std::to_string(::getpid());
  run_command(two("setsid sleep 600 >/dev/null 2>&1 & exit 0"), {mark}).with_code(0);
  EXPECT_TRUE(all_end(processes_with_variable(mark)));
}

TEST_F(MadeHosts, SignalsArePassedOn) {
  Command run(two("trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
  run.wait_for_lines(2);
  run.signal(SIGTERM);
  const auto end = run.wait().with_code(128 + SIGTERM);
  EXPECT_THAT(end.out, HasSubstr("\nasked"));
  EXPECT_THAT(end.out, HasSubstr("[host 1] asked"));
}

TEST_F(MadeHosts, AreStartedAgainAfterADrill) {
  const auto run = run_command(two(
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 600; echo attempt $TORCHELASTIC_RESTART_COUNT "
      "port $PET_MASTER_PORT",
      "--max-restarts 1 --kill 1@0.2"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("attempt 1 port 29501\n"));
  EXPECT_THAT(run.out, HasSubstr("[host 1] attempt 1"));
  EXPECT_THAT(run.err, HasSubstr("killing host 1, as --kill asks"));
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 1: host 1 was killed by SIGKILL"));
}

// A bench takes from its children what a run has used of the cores.
TEST_F(MadeHosts, WhatAKilledHostHasComputedIsCounted) {
  const TemporaryFolder folder;
  const double before = seconds_of_children();
  const auto run = run_command(
      two("[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; sh -c 'i=0; while [ $i -lt 500000 ]; do "
          "i=$((i+1)); done; times > " +
              folder.file("times") + "-$PET_NODE_RANK; sleep 600' & wait",
          "--max-restarts 1 --kill 1@4"));
  EXPECT_EQ(run.code(), 0) << run.err;
  const double survivor = seconds_in(folder.file("times-0"));
  const double killed = seconds_in(folder.file("times-1"));
  ASSERT_GT(killed, 0) << "it was killed before it had computed";
  EXPECT_GE(seconds_of_children() - before, survivor + killed);
}

TEST_F(MadeHosts, ARunThatFailsAgainIsGivenUp) {
  const auto run = run_command(two("exit 8", "--max-restarts 2")).with_code(8);
  EXPECT_THAT(run.err, HasSubstr("restarts used up: --max-restarts 2"));
}

TEST_F(MadeHosts, ALauncherInsideCountsOn) {
  const auto run = run_command(
      shell_on("--count 2 --max-restarts 1 --kill 0@0.2 -- lockstep run --nproc-per-node 1 --",
          "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 600; echo rank $RANK of $WORLD_SIZE "
          "restart $TORCHELASTIC_RESTART_COUNT after ${LOCKSTEP_DEATH_NS:+a death}"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 2 restart 1 after a death\n"));
  EXPECT_THAT(run.out, HasSubstr("rank 1 of 2 restart 1 after a death\n"));
}

}  // namespace
}  // namespace lockstep::testing
