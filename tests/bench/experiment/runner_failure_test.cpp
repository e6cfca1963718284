#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/sample_process.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;
using testing::shell_cell;
using testing::shell_study;
using testing::ShellRunner;
using testing::text_of;
using testing::value_cell;

/// Runs one sample of a script.
Sample sample_of(const std::filesystem::path& folder, const std::string& script) {
  ShellRunner runner(folder);
  return runner.run(shell_study({shell_cell("a", script)}, 1)).samples.at(0);
}

/// Tells whether a process that wrote its id into a file is still there.
bool is_alive(const std::filesystem::path& file) {
  const pid_t pid = std::stoi(text_of(file));
  return ::kill(pid, 0) == 0;
}

TEST(FailedSample, HasItsExitCodeMeaningAndLastLine) {
  const TemporaryFolder folder;
  const Sample sample = sample_of(folder.path(), "echo first; echo no such file >&2; echo; exit 3");
  EXPECT_EQ(sample.code, 3);
  EXPECT_EQ(sample.failure, "exited with code 3 (bad data or snapshot): no such file");
  EXPECT_THAT(sample.values, IsEmpty());
  EXPECT_GT(sample.seconds, 0);
}

// As after a rank that ran out of memory: the line that says so is not the last.
TEST(FailedSample, HasWhatTheLauncherSaysOfTheCause) {
  const TemporaryFolder folder;
  const Sample sample = sample_of(folder.path(),
      "echo 'lockstep: the run failed: rank 1 of 2 (host a, pid 7) exited with code 4: out of "
      "memory: tried 2 GiB' >&2; echo 'lockstep: its whole output: /x' >&2; exit 4");
  EXPECT_EQ(sample.failure,
      "exited with code 4 (port, disk, device or permission): lockstep: the run failed: rank 1 of "
      "2 (host a, pid 7) exited with code 4: out of memory: tried 2 GiB");
}

TEST(FailedSample, HasTheSignalThatKilledIt) {
  const TemporaryFolder folder;
  const Sample sample = sample_of(folder.path(), "echo 1 > \"$RUN/value\"; kill -SEGV $$");
  EXPECT_EQ(sample.code, 139);
  EXPECT_EQ(sample.failure, "was killed by SIGSEGV (signal 11)");
  EXPECT_THAT(sample.values, IsEmpty()) << "what a failed run left is not looked at";
}

TEST(FailedSample, KilledOutright) {
  const TemporaryFolder folder;
  const Sample sample = sample_of(folder.path(), "kill -KILL $$");
  EXPECT_EQ(sample.code, 137);
  EXPECT_THAT(sample.failure, HasSubstr("was killed by SIGKILL (signal 9)"));
}

TEST(FailedSample, RanOutOfTime) {
  const TemporaryFolder folder;
  Study study = shell_study(
      {shell_cell("a", concat("echo $$ > ", folder.path().string(), "/pid; echo begun; sleep 600")),
          value_cell("b", 1)},
      1);
  study.limit_seconds = 1;
  ShellRunner runner(folder.path());
  const RunnerResult result = runner.run(study);
  EXPECT_EQ(result.exit_code(), 1);
  const Sample& a = result.samples[result.samples[0].cell == "a" ? 0 : 1];
  EXPECT_EQ(a.failure, "took longer than 1 s and was ended: begun");
  EXPECT_EQ(a.code, 137);
  EXPECT_GE(a.seconds, 1);
  EXPECT_FALSE(is_alive(folder.path() / "pid"));
}

TEST(FailedSample, LeftNothingReadable) {
  const TemporaryFolder folder;
  EXPECT_EQ(sample_of(folder.path() / "1", "echo 1 > \"$RUN/value\"").failure, "");
  const Sample sample = sample_of(folder.path() / "2", "echo x > \"$RUN/value\"");
  EXPECT_EQ(sample.code, 0);
  EXPECT_THAT(sample.failure, HasSubstr("its results cannot be read: "));
  EXPECT_THAT(sample.failure, HasSubstr("a-1/value: holds no number"));
  Study study = shell_study({value_cell("a", 1)}, 1);
  study.values = [](const StudyCell&, const std::filesystem::path&) {
    return std::map<std::string, double>();
  };
  ShellRunner runner(folder.path() / "3");
  EXPECT_EQ(runner.run(study).samples[0].failure, "its run left no values");
}

TEST(FailedSample, DoesNotStopTheOthers) {
  const TemporaryFolder folder;
  Study study = shell_study(
      {value_cell("a", 1), shell_cell("b", "exit 1"), shell_cell("c", "kill -KILL $$")}, 2);
  ShellRunner runner(folder.path());
  const RunnerResult result = runner.run(study);
  EXPECT_EQ(result.exit_code(), 1);
  ASSERT_EQ(result.samples.size(), 6U);
  for (const Sample& sample : result.samples) {
    EXPECT_EQ(sample.worked(), sample.cell == "a") << sample.cell;
  }
}

TEST(FailedSample, IsTakenAgainOnlyWhenAsked) {
  const TemporaryFolder folder;
  const std::string mark = (folder.path() / "mark").string();
  const Study study =
      shell_study({shell_cell("a", concat("test -e ", mark, " && echo 1 > \"$RUN/value\""))}, 1);
  ShellRunner runner(folder.path());
  EXPECT_EQ(runner.run(study).exit_code(), 1);
  std::ofstream(mark) << "x";
  EXPECT_EQ(runner.run(study).exit_code(), 1);
  runner.options.retry_failed = true;
  const RunnerResult result = runner.run(study);
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_THAT(names(result.samples), ElementsAre("a-1"));
}

// A worker in a group and a session of its own, with its father dead, still counts.
TEST(FailedSample, LeavesNoProcessBehind) {
  const TemporaryFolder folder;
  const std::string pid = (folder.path() / "pid").string();
  const std::string stray = concat("setsid sh -c 'echo $$ > ", pid, "; exec sleep 600' & ");
  const std::string wait = concat("while ! test -s ", pid, "; do sleep 0.01; done; ");
  const Sample sample = sample_of(folder.path() / "out", stray + wait + "echo 1 > \"$RUN/value\"");
  EXPECT_EQ(sample.failure, "") << "it ended well; the stray does not hold up the bench";
  EXPECT_FALSE(is_alive(pid));
}

TEST(FailureReason, SaysWhatTheCodeMeans) {
  const auto reason = [](int code) {
    SampleEnd end;
    end.status.code = code;
    return failure_reason(end, 10);
  };
  EXPECT_EQ(reason(0), "");
  EXPECT_EQ(reason(1), "exited with code 1");
  EXPECT_EQ(reason(2), "exited with code 2 (bad flags or configuration)");
  EXPECT_EQ(reason(4), "exited with code 4 (port, disk, device or permission)");
  EXPECT_EQ(reason(5), "exited with code 5 (a peer died or could not be found)");
  EXPECT_EQ(reason(6), "exited with code 6 (NaN or Inf in training)");
  EXPECT_EQ(reason(75), "exited with code 75 (stopped by a signal, with a snapshot)");
  EXPECT_EQ(reason(139), "exited with code 139 (a process of it was ended by SIGSEGV)");
}

TEST(FailureReason, NamesTheWantOfMemory) {
  SampleEnd end;
  end.status.signal = SIGKILL;
  end.last_lines = {"epoch 1", " "};
  end.oom.on_host = 1;
  EXPECT_EQ(failure_reason(end, 10),
      "was killed by SIGKILL (signal 9), probably for want of memory (the host killed a process): "
      "epoch 1");
  end.oom.in_cgroup = 1;
  EXPECT_THAT(failure_reason(end, 10), HasSubstr("for want of memory (the limit of our cgroup)"));
  end.status = {.code = 137};
  EXPECT_THAT(failure_reason(end, 10), HasSubstr("for want of memory")) << "a worker was killed";
  end.status = {.code = 1};
  EXPECT_EQ(failure_reason(end, 10), "exited with code 1: epoch 1");
  end.status = {.signal = SIGKILL};
  end.out_of_time = true;
  EXPECT_EQ(failure_reason(end, 10), "took longer than 10 s and was ended: epoch 1");
}

}  // namespace
}  // namespace lockstep::bench
