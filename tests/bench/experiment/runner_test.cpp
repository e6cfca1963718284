#include "bench/experiment/runner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/sample.h"
#include "bench/experiment/sample_process.h"
#include "bench/experiment/study.h"
#include "bench/experiment/turns.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::contents;
using lockstep::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;
using testing::shell_cell;
using testing::shell_study;
using testing::ShellRunner;
using ::testing::SizeIs;
using testing::value_cell;

class RunStudy : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  ShellRunner runner_{folder_.path()};
};

using RunStudyByAProgram = RunStudy;

TEST_F(RunStudy, TakesEachSampleInTheDrawnOrder) {
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 2), value_cell("c", 3)}, 2);
  std::vector<std::string> expected;
  for (const Turn& turn : missing_turns(study, {}, 42, false)) {
    expected.push_back(concat(study.cells[turn.cell].id, "-", turn.round));
  }
  runner_.options.output = folder_.path() / "new" / "bench";
  const RunnerResult result = runner_.run(study);
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(names(result.samples), expected);
  EXPECT_EQ(read_samples(runner_.options.output / "samples.jsonl").samples, result.samples);
  EXPECT_EQ(result.samples.front().values.at("seconds"), result.samples.front().cell[0] - 'a' + 1);
}

// The first round has the cells' own order here, so that what is left over is known.
TEST_F(RunStudy, PassesOverWhatIsNotWorthItsTime) {
  Study study = shell_study({value_cell("a", 1), value_cell("b", 2), value_cell("c", 3)}, 9);
  study.begins_in_order = true;
  study.worth = [](std::span<const CellResult> results) {
    std::vector<bool> worth;
    for (const CellResult& result : results)
      worth.push_back(result.samples.size() < (result.cell.id == "b" ? 3U : 1U));
    return worth;
  };
  EXPECT_THAT(names(runner_.run(study).samples), ElementsAre("a-1", "b-1", "c-1", "b-2", "b-3"));
  EXPECT_THAT(runner_.said.front(), HasSubstr("sample 1, round 1: a"));
}

TEST_F(RunStudy, BeginsNoSampleAfterItsTimeAndGoesOnLater) {
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 2)}, 1);
  runner_.options.budget_seconds = 0;
  const RunnerResult none = runner_.run(study);
  EXPECT_THAT(none.samples, SizeIs(0));
  EXPECT_EQ(none.exit_code(), 0);
  EXPECT_THAT(runner_.said.back(), HasSubstr("is over; the same command with"));
  runner_.options.budget_seconds = 1000;
  EXPECT_THAT(runner_.run(study).samples, SizeIs(2));
}

TEST_F(RunStudy, NotesWhatSurroundsASample) {
  Study study = shell_study({value_cell("a", 1)}, 1);
  study.cells[0].places = 2;
  runner_.options.cores = 2;
  const Sample sample = runner_.run(study).samples.front();
  EXPECT_EQ(sample.study, "shell");
  EXPECT_EQ(sample.round, 1);
  EXPECT_THAT(sample.time, ::testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
  EXPECT_EQ(sample.settings.at("name"), "a");
  EXPECT_EQ(sample.command, study.cells[0].command);
  EXPECT_EQ(sample.places, 2);
  EXPECT_FALSE(sample.oversubscribed);
  EXPECT_GT(sample.seconds, 0);
  EXPECT_GT(sample.calibration_seconds, 0);
  EXPECT_TRUE(std::isnan(sample.other_share) || sample.other_share <= 1);
}

TEST_F(RunStudy, MarksMorePlacesThanCores) {
  Study study = shell_study({value_cell("a", 1), value_cell("b", 1), value_cell("c", 1)}, 1);
  study.cells[0].places = 3;
  study.cells[1].places = 2;
  study.cells[2].places = 2;
  study.cells[2].cores = 1;
  runner_.options.cores = 2;
  for (const Sample& sample : runner_.run(study).samples) {
    EXPECT_EQ(sample.oversubscribed, sample.cell != "b") << sample.cell;
  }
}

TEST_F(RunStudy, KeepsTheOutputAndRemovesTheRun) {
  StudyCell cell = value_cell("a", 1);
  cell.command[1] += "; echo out; echo err >&2";
  const Study study = shell_study({cell}, 1);
  runner_.run(study);
  EXPECT_THAT(contents(folder_.path() / "runs/shell/a-1.log"), HasSubstr("out\n"));
  EXPECT_THAT(contents(folder_.path() / "runs/shell/a-1.log"), HasSubstr("err\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "runs/shell/a-1"));
}

TEST_F(RunStudy, KeepsTheRunWhenAsked) {
  runner_.options.keep_runs = true;
  runner_.run(shell_study({value_cell("a", 5)}, 1));
  EXPECT_EQ(contents(folder_.path() / "runs/shell/a-1/value"), "5\n");
}

// A trainer goes on with the run that it finds.
TEST_F(RunStudy, BeginsWithoutWhatAStoppedBenchLeft) {
  std::filesystem::create_directories(folder_.path() / "runs/shell/a-1/snapshots");
  const StudyCell cell = shell_cell("a", "test ! -e \"$RUN/snapshots\" && echo 1 > \"$RUN/value\"");
  EXPECT_EQ(runner_.run(shell_study({cell}, 1)).exit_code(), 0);
}

TEST_F(RunStudy, GivesACellItsEnvironmentAndCores) {
  StudyCell cell = shell_cell("a",
      "echo 1 > \"$RUN/value\"; echo \"PATH=$PATH. NEW=$NEW. HOME=$HOME.\"; "
      "env -u OMP_NUM_THREADS nproc; "
      "tr '\\0' '\\n' < /proc/$$/environ | grep -c ^PATH=");
  cell.environment = {"PATH=/usr/bin:/bin", "NEW=a=b"};
  cell.cores = 1;
  ::setenv("HOME", "/inherited", 1);
  ASSERT_EQ(runner_.run(shell_study({cell}, 1)).exit_code(), 0);
  EXPECT_EQ(contents(folder_.path() / "runs/shell/a-1.log"),
      "PATH=/usr/bin:/bin. NEW=a=b. HOME=/inherited.\n1\n1\n")
      << "one core, one PATH";
  cell.id = "b";
  cell.cores = 100000;
  ShellRunner more(folder_.path() / "more");
  more.run(shell_study({cell}, 1));
  EXPECT_THAT(contents(folder_.path() / "more/runs/shell/b-1.log"),
      HasSubstr(concat(".\n", available_cpus().size(), "\n")));
}

TEST_F(RunStudy, NotesWhatCannotBeMeasured) {
  Study study = shell_study({value_cell("a", 1), value_cell("b", 1)}, 2);
  study.cells[0].not_measurable = "needs root";
  const RunnerResult result = runner_.run(study);
  EXPECT_EQ(result.exit_code(), 0) << "it is no failure";
  EXPECT_THAT(names(result.samples), ElementsAre("a-1", "b-1", "b-2"));
  EXPECT_EQ(result.samples[0].not_measurable, "needs root");
  EXPECT_THAT(runner_.said, Contains("shell: a cannot be measured here: needs root"));
  EXPECT_THAT(runner_.run(study).samples, SizeIs(3)) << "noted once";
  study.cells[0].not_measurable = "";
  const RunnerResult now = runner_.run(study);
  EXPECT_THAT(names(now.samples), ElementsAre("b-1", "b-2", "a-1", "a-2"));
}

TEST_F(RunStudy, TellsHowFarItIs) {
  runner_.run(shell_study({value_cell("a", 1)}, 2));
  ASSERT_THAT(runner_.said, SizeIs(4));
  EXPECT_EQ(runner_.said[0], "shell: sample 1 of 2, round 1: a");
  EXPECT_THAT(runner_.said[1], HasSubstr("a: 0."));
  EXPECT_THAT(runner_.said[2], HasSubstr("shell: sample 2 of 2, round 2: a; about 0."));
}

TEST_F(RunStudy, RefusesSamplesOfOtherWork) {
  runner_.run(shell_study({value_cell("a", 1)}, 1));
  const auto complaint = [&](const Study& study) {
    return lockstep::testing::complaint_of<InvalidArgument>([&] { runner_.run(study); });
  };
  EXPECT_THAT(complaint(shell_study({value_cell("a", 2)}, 1)),
      HasSubstr(
          "samples.jsonl holds samples of shell's cell a, made by another command; continue"));
  EXPECT_THAT(complaint(shell_study({value_cell("b", 1)}, 1)),
      HasSubstr("cell a, which is not measured now"));
  Study other = shell_study({value_cell("b", 1)}, 1);
  other.name = "other";
  EXPECT_EQ(complaint(other), "") << "studies may share a folder";
  EXPECT_THAT(complaint(Study()), HasSubstr("nothing reads the values")) << "what cannot be";
}

TEST_F(RunStudy, RefusesAProgramThatIsNotThere) {
  runner_.options.output = folder_.path() / "out";
  runner_.options.program = "/nonexistent/lockstep";
  EXPECT_THROW(runner_.run(shell_study({value_cell("a", 1)}, 1)), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "out"));
}

/// Has `env` start our program, here a shell.
StudyCell cell_of_env() {
  StudyCell cell = value_cell("a", 3);
  cell.program = "env";
  cell.command.insert(cell.command.begin(), {"FROM={bench}", kThisProgram});
  cell.command[3] += "; echo \"$FROM\"";
  return cell;
}

TEST_F(RunStudyByAProgram, StartsItFromPathAndPutsOursInItsPlace) {
  const Study study = shell_study({cell_of_env()}, 1);
  const Sample sample = runner_.run(study).samples.front();
  EXPECT_EQ(sample.failure, "");
  EXPECT_EQ(sample.values.at("seconds"), 3);
  EXPECT_EQ(sample.command.front(), "env") << "the sample says who started it";
  EXPECT_THAT(sample.command, Contains(kThisProgram));
  EXPECT_EQ(contents(folder_.path() / "runs" / "shell" / "a-1.log"),
      std::filesystem::absolute(folder_.path()).string() + "\n");
  EXPECT_EQ(runner_.run(study).samples.size(), 1U) << "and goes on with it";
}

TEST_F(RunStudyByAProgram, NotesOneThatIsMissingAndGoesOn) {
  StudyCell missing = cell_of_env();
  missing.id = "missing";
  missing.program = "no-such-launcher";
  const auto result = runner_.run(shell_study({missing, value_cell("b", 1)}, 1));
  EXPECT_EQ(result.exit_code(), 1);
  ASSERT_EQ(result.samples.size(), 2U);
  for (const Sample& sample : result.samples) {
    if (sample.cell == "b") {
      EXPECT_TRUE(sample.worked());
    } else {
      EXPECT_EQ(sample.code, 4);
      EXPECT_THAT(sample.failure, HasSubstr("there is no program no-such-launcher"));
    }
  }
}

constexpr int kRounds = 3;

/// Makes a study whose samples each add a letter to a file; when it has so many, one sends a signal
/// to the bench, once, and goes on for long, as does a process that it started.
Study striking_study(
    const std::filesystem::path& folder, int strike_at, const std::string& signal) {
  const std::string count = (folder / "count").string();
  const std::string pid = (folder / "pid").string();
  const std::string script = concat("printf x >> ", count, "; echo 1 > \"$RUN/value\"; ",
      "if test $(wc -c < ", count, ") = ", strike_at, "; then sleep 600 & echo $! > ", pid,
      "; kill -", signal, " $PPID; wait; fi");
  return shell_study(
      {shell_cell("a", script), shell_cell("b", script), shell_cell("c", script)}, kRounds);
}

/// Runs a study in a process of its own and gives that process's wait status.
int run_in_child(const Study& study, const std::filesystem::path& output) {
  const pid_t child = ::fork();
  if (child == 0) {
    // What started the tests may have them ignored: nohup, a shell's background.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    ShellRunner runner(output);
    ::_exit(runner.run(study).exit_code());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

std::vector<std::string> undisturbed_names() {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path() / "out");
  return names(runner.run(striking_study(folder.path(), 0, "KILL")).samples);
}

/// Waits until the process of that id has gone: the guardian kills it soon after the bench, and it
/// becomes our child.
bool is_gone(const std::filesystem::path& file) {
  const pid_t pid = std::stoi(contents(file));
  for (int i = 0; i < 6000 && ::kill(pid, 0) == 0; ++i) {
    launch::reap_strays({});
    ::usleep(10000);
  }
  return ::kill(pid, 0) != 0;
}

// The same cells and rounds, in the same order, each once.
TEST(StoppedBench, GoesOnAfterAKillAtAnySample) {
  const auto expected = undisturbed_names();
  ASSERT_EQ(expected.size(), 3U * kRounds);
  const launch::Subreaper subreaper;
  for (int strike_at = 1; strike_at <= 3 * kRounds; ++strike_at) {
    const TemporaryFolder folder;
    const Study study = striking_study(folder.path(), strike_at, "KILL");
    const int status = run_in_child(study, folder.path() / "out");
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_TRUE(is_gone(folder.path() / "pid")) << "the sample dies with the bench";
    ShellRunner runner(folder.path() / "out");
    EXPECT_EQ(read_samples(folder.path() / "out/samples.jsonl").samples.size(),
        static_cast<std::size_t>(strike_at - 1));
    const RunnerResult result = runner.run(study);
    EXPECT_EQ(result.exit_code(), 0);
    EXPECT_EQ(names(result.samples), expected) << strike_at;
  }
}

TEST(StoppedBench, EndsCleanlyAtASignalAndGoesOn) {
  for (const std::string& name : {std::string("INT"), std::string("TERM"), std::string("HUP")}) {
    const TemporaryFolder folder;
    const Study study = striking_study(folder.path(), 4, name);
    const int status = run_in_child(study, folder.path() / "out");
    const int signal = launch::signal_number(name).value();
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_NE(::kill(std::stoi(contents(folder.path() / "pid")), 0), 0) << "gone before the bench";
    EXPECT_EQ(read_samples(folder.path() / "out/samples.jsonl").samples.size(), 3U);
    for (const auto& entry :
        std::filesystem::directory_iterator(folder.path() / "out/runs/shell")) {
      EXPECT_FALSE(entry.is_directory()) << entry.path();
    }
    ShellRunner runner(folder.path() / "out");
    EXPECT_EQ(names(runner.run(study).samples), undisturbed_names());
    EXPECT_THAT(runner.said, Contains("shell: has 3 samples from before; 6 are missing"));
  }
}

TEST(StoppedBench, GoesOnAfterATornLine) {
  const TemporaryFolder folder;
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 1)}, 2);
  ShellRunner runner(folder.path());
  const auto whole = names(runner.run(study).samples);
  const auto path = folder.path() / "samples.jsonl";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  runner.said.clear();
  EXPECT_EQ(names(runner.run(study).samples), whole);
  EXPECT_THAT(
      runner.said[0], HasSubstr("samples.jsonl: line 4: incomplete because its writer died"));
}

TEST(FinishedBench, MeasuresNothingAgain) {
  const TemporaryFolder folder;
  const Study study = striking_study(folder.path(), 0, "KILL");
  ShellRunner runner(folder.path() / "out");
  const auto first = runner.run(study).samples;
  EXPECT_EQ(runner.run(study).samples, first);
  EXPECT_EQ(contents(folder.path() / "count").size(), 3U * kRounds);
  Study longer = study;
  longer.rounds = kRounds + 1;
  EXPECT_EQ(runner.run(longer).samples.size(), 3U * (kRounds + 1)) << "more rounds add to it";
}

/// Runs one sample of a script.
Sample sample_of(const std::filesystem::path& folder, const std::string& script) {
  ShellRunner runner(folder);
  return runner.run(shell_study({shell_cell("a", script)}, 1)).samples.at(0);
}

/// Tells whether a process that wrote its id into a file is still there.
bool is_alive(const std::filesystem::path& file) {
  const pid_t pid = std::stoi(contents(file));
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
