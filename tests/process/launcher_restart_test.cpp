#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>

#include "lockstep/core/environment.h"

#include "launcher_run.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> shell(
    const std::string& restarts, const std::string& script, std::vector<std::string> flags = {}) {
  std::vector<std::string> arguments{"run", "--nproc-per-node", "2",     "--log-line-prefix",
                                     "",    "--max-restarts",   restarts};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", "n=$TORCHELASTIC_RESTART_COUNT; " + script});
  return arguments;
}

/// Gives the words of a script that report a step.
std::string report(const std::string& step) {
  return *environment("LOCKSTEP_BINARY_DIR") + "/progress_probe " + step + "; ";
}

std::ptrdiff_t count_of(const std::string& what, const std::string& text) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(LauncherRestart, StartsAllRanksAgainWhenOneDies) {
  const auto run = run_launcher(shell(
      "3",
      "[ $RANK$n = 10 ] && { echo why >&2; kill -9 $$; }; [ $n = 0 ] && exec sleep 600; "
      "echo rank $RANK, $n of $TORCHELASTIC_MAX_RESTARTS"));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("rank 0, 1 of 3\n"));
  EXPECT_THAT(run.output, HasSubstr("rank 1, 1 of 3\n"));
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 3: rank 1 of 2 (host "));
  EXPECT_THAT(run.errors, HasSubstr("was killed by SIGKILL (signal 9)\n"));
  EXPECT_THAT(run.errors, HasSubstr("  | why\n"));
  EXPECT_THAT(run.errors, Not(HasSubstr("the run failed")));
}

TEST(LauncherRestart, HappensAsOftenAsAllowed) {
  const std::string script = "[ $RANK = 0 ] && exec sleep 600; echo life $n; exit $((n + 3))";
  const auto run = run_launcher(shell("2", script));
  EXPECT_EQ(run.status.code, 5) << "the code of the last life";
  EXPECT_THAT(numbers_after("life", run.output), ElementsAre(0, 1, 2));
  EXPECT_THAT(run.errors, HasSubstr("the run failed: rank 1 of 2 (host "));
  EXPECT_THAT(run.errors, HasSubstr("lockstep: restarts used up: --max-restarts 2\n"));
  EXPECT_EQ(count_of("the run failed", run.errors), 1);
}

TEST(LauncherRestart, DoesNotHappenUnlessAskedFor) {
  const auto run = run_launcher(shell("0", "echo life; [ $RANK = 1 ] && exit 9; exec sleep 600"));
  EXPECT_EQ(run.status.code, 9);
  EXPECT_THAT(run.errors, Not(HasSubstr("restart")));
}

TEST(LauncherRestart, HasAPortOfItsOwnUnlessOneWasGiven) {
  const std::string script = "[ $RANK = 1 ] && exit 0; echo port $MASTER_PORT; [ $n = 2 ]";
  const auto free = run_launcher(shell("2", script));
  auto ports = numbers_after("port", free.output);
  ASSERT_EQ(ports.size(), 3U) << free.errors;
  EXPECT_NE(ports[0], ports[1]);
  EXPECT_NE(ports[1], ports[2]);
  const std::string given = std::to_string(ports[0]);
  const auto fixed = run_launcher(shell("2", script, {"--master-port", given}));
  EXPECT_EQ(fixed.status.result(), 0) << fixed.errors;
  EXPECT_EQ(numbers_after("port", fixed.output), std::vector<pid_t>(3, ports[0]));
}

TEST(LauncherRestart, IsGivenUpWhenNoStepIsGained) {
  const auto run = run_launcher(shell(
      "9", report("500") + "[ $RANK = 0 ] && exec sleep 600; [ $n = 0 ] && kill -SEGV $$; exit 7"));
  EXPECT_EQ(run.status.code, 139) << "the first of these deaths decides";
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 9: "));
  EXPECT_THAT(run.errors, Not(HasSubstr("restart 2 of 9: ")));
  EXPECT_THAT(
      run.errors,
      HasSubstr("lockstep: no progress: died again at step 500, as before; the first of these "
                "deaths gives the code 139\n"));
  const auto early = run_launcher(shell("9", report("0") + "[ $RANK = 0 ] && exit 4; sleep 600"));
  EXPECT_EQ(early.status.code, 4);
  EXPECT_THAT(early.errors, HasSubstr("no progress: died again before its first step, as before"));
}

TEST(LauncherRestart, GoesOnAsLongAsStepsAreGained) {
  const auto run = run_launcher(
      shell("4", report("$((n * 100 + 100))") + "[ $RANK = 0 ] && exit 0; [ $n = 4 ]"));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("restart 4 of 4: "));
}

TEST(LauncherRestart, TellsHowLongTrainingWasInterrupted) {
  const auto run = run_launcher(shell("1", "[ $n$RANK = 01 ] && exit 1; " + report("$((n + 1))")));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 1: training went on "));
  EXPECT_THAT(run.errors, HasSubstr(" s after the death\n"));
  EXPECT_THAT(run.output, HasSubstr("after ")) << "the rank knows it too";
}

/// Gives the words by which rank 1 waits, in each life, until rank 0 has come to its own of them.
std::string meet(const TemporaryFolder& folder) {
  const std::string file = folder.path("met-$n");
  return "[ $RANK = 0 ] && touch " + file + "; while [ ! -e " + file + " ]; do sleep 0.01; done; ";
}

TEST(LauncherRestart, ContinuesTheLogs) {
  const TemporaryFolder folder, meeting;
  const auto run = run_launcher(shell(
      "1", "echo out $n; printf err$n >&2; " + meet(meeting) + "[ $RANK = 0 ] || [ $n = 1 ]",
      {"--log-dir", folder.path(), "--tee", "0:3,1:1"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_EQ(folder.text_of("rank-0.stderr.log"), "err0\nlockstep: restart 1 of 1\nerr1");
  EXPECT_EQ(folder.text_of("rank-0.stdout.log"), "out 0\nout 1\n") << "nothing but its own";
  EXPECT_EQ(folder.text_of("rank-1.stdout.log"), "out 0\nout 1\n");
  EXPECT_EQ(count_of("out 0\n", run.output), 2);
  EXPECT_EQ(count_of("out 1\n", run.output), 2);

  const TemporaryFolder both;
  run_launcher(
      shell("1", "[ $RANK = 1 ] || { echo out $n; [ $n = 1 ]; }", {"--log-dir", both.path()}));
  EXPECT_EQ(both.text_of("rank-0.log"), "out 0\nlockstep: restart 1 of 1\nout 1\n");
}

TEST(LauncherRestart, LosesNoLine) {
  // Rank 1 fails when it has written all; rank 0 is perhaps ended before.
  const auto run = run_launcher(shell(
      "2", "seq 1 20000; [ $n = 2 ] || { [ $RANK = 0 ] && exec sleep 600; exit 1; }",
      {"--log-line-prefix", "${rank}:"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_EQ(count_of("1:20000\n", run.output), 3);
  EXPECT_EQ(count_of("\n1:", "\n" + run.output), 60000);
}

TEST(LauncherRestart, DoesNotWaitForWhoReadsTheOutputAndLosesNoneOfIt) {
  // Nobody reads, so rank 0 soon waits for room, and a pipe full of its lines waits with it.
  const TemporaryFolder folder;
  const std::string written = folder.path("written");
  LauncherRun running(shell(
      "1", "[ $n = 1 ] && { touch " + folder.path("again-$RANK") +
               "; exit 0; }; [ $RANK = 0 ] && "
               "while :; do echo line 1 " +
               std::string(1000, 'x') + "; echo >> " + written +
               "; done; "
               "until [ 0$(wc -l < " +
               written + ") -ge 1110 ]; do sleep 0.05; done; sleep 0.3; exit 9"));
  for (int i = 0; i < 6000 && folder.names().size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(folder.names(), ElementsAre("again-0", "again-1", "written"));
  const auto run = running.finish();
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_GE(numbers_after("line", run.output).size(), folder.text_of("written").size());
}

TEST(LauncherRestart, EndsWhatTheDeadLifeHadStarted) {
  const TemporaryFolder folder;
  const std::string left = folder.path("$RANK");
  const auto run = run_launcher(shell(
      "1", "[ $n = 1 ] && { kill -0 $(cat " + left +
               ") && echo alive; exit 0; }; setsid sh -c 'echo $$ > " + left +
               "; exec sleep 600' & while [ ! -s " + left + " ]; do sleep 0.01; done; exit 1"));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_EQ(run.output, "");
}

/// Runs two ranks of which 0 does this while it is being ended because 1 has failed.
Finished while_ending(const std::string& act) {
  const TemporaryFolder meeting;
  return run_launcher(shell(
      "3", "echo pid $$; [ $n = 1 ] && exit 0; trap '" + act + "; exec sleep 600' TERM; " +
               meet(meeting) + "[ $RANK = 1 ] && exit 7; while :; do sleep 0.01; done"));
}

TEST(LauncherRestart, IsCalledOffByASignal) {
  const auto run = while_ending("kill -TERM $PPID");
  EXPECT_EQ(run.status.code, 128 + SIGTERM) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("the run failed: rank 1 of 2"));
  EXPECT_THAT(run.errors, HasSubstr("not started again: SIGTERM\n"));
  EXPECT_EQ(numbers_after("pid", run.output).size(), 2U);
  EXPECT_TRUE(all_end(numbers_after("pid", run.output)));
}

TEST(LauncherRestart, DoesNotComeAfterTheLaunchersDeath) {
  const auto run = while_ending("kill -KILL $PPID");
  EXPECT_EQ(run.status.signal, SIGKILL);
  EXPECT_EQ(numbers_after("pid", run.output).size(), 2U);
  EXPECT_TRUE(all_end(numbers_after("pid", run.output)));
}

TEST(LauncherRestart, StaysOneWhenASecondRankFailsMeanwhile) {
  const auto run = while_ending("exit 9");
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 3: rank 1 of 2"));
  EXPECT_THAT(run.errors, Not(HasSubstr("restart 2 of 3")));
}

TEST(LauncherRestart, ASignalToTheNextLifeIsPassedOn) {
  LauncherRun running(shell(
      "3",
      "[ $n$RANK = 01 ] && exit 1; trap 'exit 75' TERM; [ $n = 1 ] && echo ready; "
      "while :; do sleep 0.01; done"));
  running.wait_for_lines(2);
  running.signal(SIGTERM);
  const auto run = running.finish();
  EXPECT_EQ(run.status.code, 75) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("passing SIGTERM on"));
}

TEST(LauncherRestart, ThatCannotBeMadeComesAfterTheReport) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("logs"));
  const auto run = run_launcher(shell(
      "1", "[ $RANK = 0 ] && exec sleep 600; rm -r " + folder.path("logs") + "; exit 7",
      {"--log-dir", folder.path("logs")}));
  EXPECT_EQ(run.status.code, 4) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 1: rank 1 of 2"));
  EXPECT_THAT(run.errors, HasSubstr("open the log"));
}

}  // namespace
}  // namespace lockstep::testing
