#include <filesystem>
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/process/command.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Returns the arguments by which two ranks run a script that knows its restarts as $n.
Words restarting(
    const std::string& most, const std::string& script, const std::string& flags = "") {
  Words all = shell_ranks(
      "n=$TORCHELASTIC_RESTART_COUNT; " + script, "--max-restarts " + most + " " + flags);
  all.insert(all.begin() + 1, {"--log-line-prefix", ""});
  return all;
}

/// Returns the words of a script that report a step.
std::string report(const std::string& step) {
  return *environment("LOCKSTEP_BINARY_DIR") + "/progress_probe " + step + "; ";
}

TEST(LauncherRestart, StartsAllRanksAgainWhenOneDies) {
  const auto run = run_command(restarting("3",
      "[ $RANK$n = 10 ] && { echo why >&2; kill -9 $$; }; [ $n = 0 ] && exec sleep 600; "
      "echo rank $RANK, $n of $TORCHELASTIC_MAX_RESTARTS"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0, 1 of 3\n"));
  EXPECT_THAT(run.out, HasSubstr("rank 1, 1 of 3\n"));
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 3: rank 1 of 2 (host "));
  EXPECT_THAT(run.err, HasSubstr("was killed by SIGKILL (signal 9)\n"));
  EXPECT_THAT(run.err, HasSubstr("  | why\n"));
  EXPECT_THAT(run.err, Not(HasSubstr("the run failed")));
}

TEST(LauncherRestart, HappensAsOftenAsAllowed) {
  const std::string script = "[ $RANK = 0 ] && exec sleep 600; echo attempt $n; exit $((n + 3))";
  const auto run = run_command(restarting("2", script));
  EXPECT_EQ(run.status.code, 5) << "the code of the last attempt";
  EXPECT_THAT(numbers_after("attempt", run.out), ElementsAre(0, 1, 2));
  EXPECT_THAT(run.err, HasSubstr("the run failed: rank 1 of 2 (host "));
  EXPECT_THAT(run.err, HasSubstr("lockstep: restarts used up: --max-restarts 2\n"));
  EXPECT_EQ(count_of("the run failed", run.err), 1);
}

TEST(LauncherRestart, DoesNotHappenUnlessAskedFor) {
  const auto run =
      run_command(restarting("0", "echo attempt; [ $RANK = 1 ] && exit 9; exec sleep 600"));
  EXPECT_EQ(run.status.code, 9);
  EXPECT_THAT(run.err, Not(HasSubstr("restart")));
}

TEST(LauncherRestart, HasItsOwnPortUnlessOneWasGiven) {
  const std::string script = "[ $RANK = 1 ] && exit 0; echo port $MASTER_PORT; [ $n = 2 ]";
  const auto free = run_command(restarting("2", script));
  auto ports = numbers_after("port", free.out);
  ASSERT_EQ(ports.size(), 3U) << free.err;
  EXPECT_NE(ports[0], ports[1]);
  EXPECT_NE(ports[1], ports[2]);
  const std::string given = std::to_string(ports[0]);
  const auto fixed = run_command(restarting("2", script, "--master-port " + given)).with_code(0);
  EXPECT_EQ(numbers_after("port", fixed.out), std::vector<pid_t>(3, ports[0]));
}

TEST(LauncherRestart, IsGivenUpWhenNoStepIsGained) {
  const auto run = run_command(restarting(
      "9", report("500") + "[ $RANK = 0 ] && exec sleep 600; [ $n = 0 ] && kill -SEGV $$; exit 7"));
  EXPECT_EQ(run.status.code, 139) << "the first of these deaths decides";
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 9: "));
  EXPECT_THAT(run.err, Not(HasSubstr("restart 2 of 9: ")));
  EXPECT_THAT(run.err, HasSubstr("lockstep: no progress: died again at step 500, as before; the "
                                 "exit code is that of the first failure: 139\n"));
  const auto early =
      run_command(restarting("9", report("0") + "[ $RANK = 0 ] && exit 4; sleep 600")).with_code(4);
  EXPECT_THAT(early.err, HasSubstr("no progress: died again before its first step, as before"));
}

TEST(LauncherRestart, GoesOnAsLongAsStepsAreGainedAndReportsHowLongTrainingWasInterrupted) {
  const auto run = run_command(
      restarting("4", report("$((n * 100 + 100))") + "[ $RANK = 0 ] && exit 0; [ $n = 4 ]"))
                       .with_code(0);
  EXPECT_THAT(run.err, HasSubstr("restart 4 of 4: rank 1 of 2"));
  EXPECT_THAT(run.err, HasSubstr("restart 4 of 4: training resumed "));
  EXPECT_THAT(run.err, HasSubstr(" s after the failure\n"));
  EXPECT_THAT(run.out, HasSubstr("after ")) << "the rank knows it too";
}

/// Returns the words by which rank 1 waits, in each attempt, until rank 0 has come to its own of
/// them.
std::string meet(const TemporaryFolder& folder) {
  const std::string file = folder.file("met-$n");
  return "[ $RANK = 0 ] && touch " + file + "; while [ ! -e " + file + " ]; do sleep 0.01; done; ";
}

TEST(LauncherRestart, ContinuesTheLogs) {
  const TemporaryFolder folder, meeting;
  const auto run = run_command(restarting("1",
      "echo out $n; printf err$n >&2; " + meet(meeting) + "[ $RANK = 0 ] || [ $n = 1 ]",
      "--log-dir " + folder.str() + " --tee 0:3,1:1"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_EQ(contents(folder.file("rank-0.stderr.log")), "err0\nlockstep: restart 1 of 1\nerr1");
  EXPECT_EQ(contents(folder.file("rank-0.stdout.log")), "out 0\nout 1\n") << "nothing but its own";
  EXPECT_EQ(contents(folder.file("rank-1.stdout.log")), "out 0\nout 1\n");
  EXPECT_EQ(count_of("out 0\n", run.out), 2);
  EXPECT_EQ(count_of("out 1\n", run.out), 2);

  const TemporaryFolder both;
  run_command(
      restarting("1", "[ $RANK = 1 ] || { echo out $n; [ $n = 1 ]; }", "--log-dir " + both.str()));
  EXPECT_EQ(contents(both.file("rank-0.log")), "out 0\nlockstep: restart 1 of 1\nout 1\n");
}

TEST(LauncherRestart, LosesNoLine) {
  // Rank 1 fails when it has written all; rank 0 is perhaps ended before.
  const auto run = run_command(
      restarting("2", "seq 1 20000; [ $n = 2 ] || { [ $RANK = 0 ] && exec sleep 600; exit 1; }",
          "--log-line-prefix ${rank}:"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_EQ(count_of("1:20000\n", run.out), 3);
  EXPECT_EQ(count_of("\n1:", "\n" + run.out), 60000);
}

TEST(LauncherRestart, DoesNotWaitForTheReaderOfTheOutputAndLosesNoneOfIt) {
  // Nobody reads, so rank 0 soon waits for room, and a pipe full of its lines waits with it.
  const TemporaryFolder folder;
  const std::string written = folder.file("written");
  Command running(
      restarting("1", "[ $n = 1 ] && { touch " + folder.file("again-$RANK") +
                          "; exit 0; }; [ $RANK = 0 ] && "
                          "while :; do echo line 1 " +
                          std::string(1000, 'x') + "; echo >> " + written +
                          "; done; "
                          "until [ 0$(wc -l < " +
                          written + ") -ge 1110 ]; do sleep 0.05; done; sleep 0.3; exit 9"));
  eventually([&] { return folder.names().size() >= 3; });
  EXPECT_THAT(folder.names(), ElementsAre("again-0", "again-1", "written"));
  const auto run = running.wait().with_code(0);
  EXPECT_GE(numbers_after("line", run.out).size(), contents(folder.file("written")).size());
}

TEST(LauncherRestart, EndsWhatTheFailedAttemptHadStarted) {
  const TemporaryFolder folder;
  const std::string left = folder.file("$RANK");
  const auto run = run_command(restarting(
      "1", "[ $n = 1 ] && { kill -0 $(cat " + left +
               ") && echo alive; exit 0; }; setsid sh -c 'echo $$ > " + left +
               "; exec sleep 600' & while [ ! -s " + left + " ]; do sleep 0.01; done; exit 1"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_EQ(run.out, "");
}

/// Runs two ranks of which 0 does this while it is being ended because 1 has failed.
Ended while_ending(const std::string& act) {
  const TemporaryFolder meeting;
  return run_command(restarting("3", "echo pid $$; [ $n = 1 ] && exit 0; trap '" + act +
                                         "; exec sleep 600' TERM; " + meet(meeting) +
                                         "[ $RANK = 1 ] && exit 7; while :; do sleep 0.01; done"));
}

TEST(LauncherRestart, IsCalledOffByASignal) {
  const auto run = while_ending("kill -TERM $PPID");
  EXPECT_EQ(run.status.code, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the run failed: rank 1 of 2"));
  EXPECT_THAT(run.err, HasSubstr("not restarted: SIGTERM\n"));
  EXPECT_EQ(numbers_after("pid", run.out).size(), 2U);
  EXPECT_TRUE(all_end(numbers_after("pid", run.out)));
}

TEST(LauncherRestart, DoesNotComeAfterTheLaunchersDeath) {
  const auto run = while_ending("kill -KILL $PPID");
  EXPECT_EQ(run.status.signal, SIGKILL);
  EXPECT_EQ(numbers_after("pid", run.out).size(), 2U);
  EXPECT_TRUE(all_end(numbers_after("pid", run.out)));
}

TEST(LauncherRestart, StaysOneWhenASecondRankFailsMeanwhile) {
  const auto run = while_ending("exit 9").with_code(0);
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 3: rank 1 of 2"));
  EXPECT_THAT(run.err, Not(HasSubstr("restart 2 of 3")));
}

TEST(LauncherRestart, ASignalToTheNextAttemptIsPassedOn) {
  Command running(restarting("3",
      "[ $n$RANK = 01 ] && exit 1; trap 'exit 75' TERM; [ $n = 1 ] && echo ready; "
      "while :; do sleep 0.01; done"));
  running.wait_for_lines(2);
  running.signal(SIGTERM);
  EXPECT_THAT(running.wait().with_code(75).err, HasSubstr("passing SIGTERM on"));
}

TEST(LauncherRestart, ThatCannotBeMadeComesAfterTheReport) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("logs"));
  const auto run = run_command(
      restarting("1", "[ $RANK = 0 ] && exec sleep 600; rm -r " + folder.file("logs") + "; exit 7",
          "--log-dir " + folder.file("logs")));
  EXPECT_EQ(run.status.code, 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("restart 1 of 1: rank 1 of 2"));
  EXPECT_THAT(run.err, HasSubstr("open the log"));
}

}  // namespace
}  // namespace lockstep::testing
