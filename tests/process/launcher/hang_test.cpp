// Ranks that make no progress: who is named, and that the run goes on.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/process/launcher/nodes.h"
#include "tests/process/train/resumable_run.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string probe() { return *environment("LOCKSTEP_BINARY_DIR") + "/hang_probe"; }

/// Runs two ranks of which one, after five steps, does this.
Ended run_probe(const std::string& what, int rank, const std::string& flags) {
  Words all = words("run --nproc-per-node 2 --log-line-prefix= " + flags + " --");
  all.insert(all.end(), {probe(), what, std::to_string(rank)});
  return run_command(all);
}

TEST(LauncherHang, NamesARankThatComputesForEverAndForWhatTheOthersWait) {
  const auto run = run_probe("spin", 1, "--hang-timeout 2 --max-restarts 1").with_code(0);
  EXPECT_THAT(run.err, ContainsRegex("restart 1 of 1: rank 1 of 2 \\(host [^)]*\\) hangs: it is in "
                                     "no call of a group; its last one was all_reduce 5 \\(16 "
                                     "bytes\\); no progress for [0-9.]+ s, after step 5\n"));
  EXPECT_THAT(run.err, HasSubstr("lockstep: rank 0 waits in all_reduce 6 (16 bytes)\n"));
  EXPECT_THAT(run.err, ContainsRegex("\n  [|] [^\n]*spin_for_ever\\(\\) in hang_probe\n"));
  EXPECT_THAT(run.err, HasSubstr("rank 0 is at\nthread "));
  EXPECT_THAT(run.out, HasSubstr("rank 0 is done\n"));
  EXPECT_THAT(run.out, HasSubstr("rank 1 is done\n"));
}

TEST(LauncherHang, NamesAStoppedRankAndKeepsTheStacks) {
  const TemporaryFolder folder;
  const auto run = run_probe("stop", 0, "--hang-timeout 2 --log-dir " + folder.str()).with_code(5);
  EXPECT_THAT(run.err, ContainsRegex("the run failed: rank 0 of 2 \\(host [^)]*\\) hangs: it is "
                                     "stopped by a signal; no progress for "));
  EXPECT_THAT(run.err, HasSubstr("rank 1 waits in all_reduce 6 (16 bytes)"));
  EXPECT_THAT(run.err, HasSubstr("its whole stack: " + folder.file("rank-0-stack.log") + "\n"));
  EXPECT_THAT(contents(folder.file("rank-0-stack.log")), HasSubstr("state T"));
  EXPECT_THAT(contents(folder.file("rank-1-stack.log")), HasSubstr("wait"));
}

TEST(LauncherHang, NamesTheRankThatIsBehindWhereAllWait) {
  const auto run = run_probe("receive", 1, "--hang-timeout 2").with_code(5);
  EXPECT_THAT(run.err, ContainsRegex("the run failed: rank 1 of 2 \\(host [^)]*\\) hangs: it waits "
                                     "in recv \\(16 bytes\\); no progress for "));
  EXPECT_THAT(run.err, HasSubstr("lockstep: rank 0 waits in all_reduce 6 (16 bytes)\n"));
}

TEST(LauncherHang, DoesNotTakeALongEvaluationForOne) {
  const auto run = run_probe("evaluate", 0, "--hang-timeout 2").with_code(0);
  EXPECT_THAT(run.err, Not(HasSubstr("hangs")));
}

TEST(LauncherHang, IsNotLookedForUnlessAsked) {
  run_probe("sleep", 0, "--hang-timeout 0").with_code(0);
  const auto other = run_command(words("run --nproc-per-node 2 --hang-timeout 0.1 -- sleep 1"));
  EXPECT_EQ(other.code(), 0) << "a program that reports nothing is not watched: " << other.err;
}

TEST(LauncherHang, IsFoundOnTheNodeThatIsBehind) {
  struct Case {
    std::string act, how, more;
  };
  for (const auto& [act, how, more] :
      {Case{"stop", "it is stopped", "ending the ranks: rank 3 of 4 \\(host [^)]*\\) hangs: "},
          {"receive", "it waits in recv \\(16 bytes\\)",
              "lockstep: rank 2 waits in all_reduce 6 \\(16 bytes\\); on host [^ ]+ ranks 0 and 1 "
              "wait in all_reduce 6 \\(16 bytes\\)\n"}}) {
    Nodes nodes("--nnodes 2 --max-restarts 1 --hang-timeout 2");
    for (int node = 0; node < 2; ++node) nodes.start_program({probe(), act, "3"});
    const auto first = nodes[0].wait().with_code(0), second = nodes[1].wait().with_code(0);
    const std::string all = first.err + second.err;
    EXPECT_THAT(all, ContainsRegex("restart 1 of 1: rank 3 of 4 \\(host [^)]*\\) hangs: " + how));
    EXPECT_THAT(all, ContainsRegex(more));
    EXPECT_EQ(count_of("is done", first.out + second.out), 4);
  }
}

/// Runs two ranks of Python of which one, after five steps, does this.
Ended run_script(const std::string& what, int rank) {
  Words all = words("run -np 2 --log-line-prefix= --hang-timeout 2 --max-restarts 1");
  all.insert(all.end(), {LOCKSTEP_HANG_SCRIPT, what, std::to_string(rank)});
  return run_command(all, {"PYTHONPATH=" LOCKSTEP_PYTHON_PACKAGE, "PYTHONDONTWRITEBYTECODE=1"});
}

TEST(LauncherHang, IsFoundInAScriptOfPythonThatReportsSteps) {
  for (const auto& [act, how] :
      {std::pair("spin", "it is in no call of a group"), {"stop", "it is stopped by a signal"}}) {
    const auto run = run_script(act, 1).with_code(0);
    EXPECT_THAT(
        run.err, ContainsRegex(std::string("restart 1 of 1: rank 1 of 2 \\(host [^)]*\\) hangs: ") +
                               how + "; no progress for [0-9.]+ s, after step 5\n"));
    EXPECT_THAT(run.err, ContainsRegex("training resumed [0-9.]+ s after the failure"));
    const bool answers = act == std::string("spin");
    EXPECT_THAT(run.err,
        ContainsRegex(answers ? "\n  [|] File \"[^\"]*hang_probe.py\", line [0-9]+ in <module>\n"
                              : "\n  [|] state T"));
    EXPECT_EQ(count_of("is done", run.out), 2);
  }
}

TEST(LauncherHang, IsNoneWhereAScriptOfPythonGivesSignsOfLife) {
  const auto run = run_script("evaluate", 0).with_code(0);
  EXPECT_THAT(run.err, Not(HasSubstr("hangs")));
}

class TrainHang : public ShortRuns {};

TEST_F(TrainHang, AStoppedRankEndsAsIfNobodyHadDisturbedIt) {
  const std::string two = flags("--nproc-per-node 2 --hang-timeout 3 --max-restarts 1");
  const ResumableRun whole(two), disturbed(two);
  whole.complete();
  const auto ended = disturbed.interrupted(SIGSTOP, 1, 3).with_code(0);
  EXPECT_THAT(ended.err, ContainsRegex("restart 1 of 1: rank 1 of 2 \\(host [^)]*\\) hangs: it is "
                                       "stopped by a signal"));
  EXPECT_THAT(ended.err, HasSubstr("logs/rank-1-stack.log"));
  EXPECT_EQ(disturbed.summary()["restarts"], 1);
  expect_same(whole.outcome(), disturbed.outcome());
  EXPECT_TRUE(disturbed.processes().empty());
}

}  // namespace
}  // namespace lockstep::testing
