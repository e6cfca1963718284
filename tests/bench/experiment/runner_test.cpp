#include "bench/experiment/runner.h"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/sample.h"
#include "bench/experiment/study.h"
#include "bench/experiment/turns.h"
#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names;
using testing::shell_cell;
using testing::shell_study;
using testing::ShellRunner;
using ::testing::SizeIs;
using testing::text_of;
using testing::value_cell;

TEST(RunStudy, TakesEachSampleInTheDrawnOrder) {
  const TemporaryFolder folder;
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 2), value_cell("c", 3)}, 2);
  std::vector<std::string> expected;
  for (const Turn& turn : missing_turns(study, {}, 42, false)) {
    expected.push_back(concat(study.cells[turn.cell].id, "-", turn.round));
  }
  ShellRunner runner(folder.path() / "new" / "bench");
  const RunnerResult result = runner.run(study);
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(names(result.samples), expected);
  EXPECT_EQ(read_samples(runner.options.output / "samples.jsonl").samples, result.samples);
  EXPECT_EQ(result.samples.front().values.at("seconds"), result.samples.front().cell[0] - 'a' + 1);
}

// The first round has the cells' own order here, so that what is left over is known.
TEST(RunStudy, PassesOverWhatIsNotWorthItsTime) {
  const TemporaryFolder folder;
  Study study = shell_study({value_cell("a", 1), value_cell("b", 2), value_cell("c", 3)}, 9);
  study.begins_in_order = true;
  study.worth = [](std::span<const CellResult> results) {
    std::vector<bool> worth;
    for (const CellResult& result : results)
      worth.push_back(result.samples.size() < (result.cell.id == "b" ? 3U : 1U));
    return worth;
  };
  ShellRunner runner(folder.path());
  EXPECT_THAT(names(runner.run(study).samples), ElementsAre("a-1", "b-1", "c-1", "b-2", "b-3"));
  EXPECT_THAT(runner.said.front(), HasSubstr("sample 1, round 1: a"));
}

TEST(RunStudy, BeginsNoSampleAfterItsTimeAndGoesOnLater) {
  const TemporaryFolder folder;
  const Study study = shell_study({value_cell("a", 1), value_cell("b", 2)}, 1);
  ShellRunner runner(folder.path());
  runner.options.budget_seconds = 0;
  const RunnerResult none = runner.run(study);
  EXPECT_THAT(none.samples, SizeIs(0));
  EXPECT_EQ(none.exit_code(), 0);
  EXPECT_THAT(runner.said.back(), HasSubstr("is over; the same command with"));
  runner.options.budget_seconds = 1000;
  EXPECT_THAT(runner.run(study).samples, SizeIs(2));
}

TEST(RunStudy, NotesWhatSurroundsASample) {
  const TemporaryFolder folder;
  Study study = shell_study({value_cell("a", 1)}, 1);
  study.cells[0].places = 2;
  ShellRunner runner(folder.path());
  runner.options.cores = 2;
  const Sample sample = runner.run(study).samples.front();
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

TEST(RunStudy, MarksMorePlacesThanCores) {
  const TemporaryFolder folder;
  Study study = shell_study({value_cell("a", 1), value_cell("b", 1), value_cell("c", 1)}, 1);
  study.cells[0].places = 3;
  study.cells[1].places = 2;
  study.cells[2].places = 2;
  study.cells[2].cores = 1;
  ShellRunner runner(folder.path());
  runner.options.cores = 2;
  for (const Sample& sample : runner.run(study).samples) {
    EXPECT_EQ(sample.oversubscribed, sample.cell != "b") << sample.cell;
  }
}

TEST(RunStudy, KeepsTheOutputAndRemovesTheRun) {
  const TemporaryFolder folder;
  StudyCell cell = value_cell("a", 1);
  cell.command[1] += "; echo out; echo err >&2";
  const Study study = shell_study({cell}, 1);
  ShellRunner runner(folder.path());
  runner.run(study);
  EXPECT_THAT(text_of(folder.path() / "runs/shell/a-1.log"), HasSubstr("out\n"));
  EXPECT_THAT(text_of(folder.path() / "runs/shell/a-1.log"), HasSubstr("err\n"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs/shell/a-1"));
}

TEST(RunStudy, KeepsTheRunWhenAsked) {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path());
  runner.options.keep_runs = true;
  runner.run(shell_study({value_cell("a", 5)}, 1));
  EXPECT_EQ(text_of(folder.path() / "runs/shell/a-1/value"), "5\n");
}

// A trainer goes on with the run that it finds.
TEST(RunStudy, BeginsWithoutWhatAStoppedBenchLeft) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "runs/shell/a-1/snapshots");
  const StudyCell cell = shell_cell("a", "test ! -e \"$RUN/snapshots\" && echo 1 > \"$RUN/value\"");
  ShellRunner runner(folder.path());
  EXPECT_EQ(runner.run(shell_study({cell}, 1)).exit_code(), 0);
}

TEST(RunStudy, GivesACellItsEnvironmentAndCores) {
  const TemporaryFolder folder;
  StudyCell cell = shell_cell("a",
      "echo 1 > \"$RUN/value\"; echo \"PATH=$PATH. NEW=$NEW. HOME=$HOME.\"; "
      "env -u OMP_NUM_THREADS nproc; "
      "tr '\\0' '\\n' < /proc/$$/environ | grep -c ^PATH=");
  cell.environment = {"PATH=/usr/bin:/bin", "NEW=a=b"};
  cell.cores = 1;
  ::setenv("HOME", "/inherited", 1);
  ShellRunner runner(folder.path());
  ASSERT_EQ(runner.run(shell_study({cell}, 1)).exit_code(), 0);
  EXPECT_EQ(text_of(folder.path() / "runs/shell/a-1.log"),
      "PATH=/usr/bin:/bin. NEW=a=b. HOME=/inherited.\n1\n1\n")
      << "one core, one PATH";
  cell.id = "b";
  cell.cores = 100000;
  ShellRunner more(folder.path() / "more");
  more.run(shell_study({cell}, 1));
  EXPECT_THAT(text_of(folder.path() / "more/runs/shell/b-1.log"),
      HasSubstr(concat(".\n", available_cpus().size(), "\n")));
}

TEST(RunStudy, NotesWhatCannotBeMeasured) {
  const TemporaryFolder folder;
  Study study = shell_study({value_cell("a", 1), value_cell("b", 1)}, 2);
  study.cells[0].not_measurable = "needs root";
  ShellRunner runner(folder.path());
  const RunnerResult result = runner.run(study);
  EXPECT_EQ(result.exit_code(), 0) << "it is no failure";
  EXPECT_THAT(names(result.samples), ElementsAre("a-1", "b-1", "b-2"));
  EXPECT_EQ(result.samples[0].not_measurable, "needs root");
  EXPECT_THAT(runner.said, Contains("shell: a cannot be measured here: needs root"));
  EXPECT_THAT(runner.run(study).samples, SizeIs(3)) << "noted once";
  study.cells[0].not_measurable = "";
  const RunnerResult now = runner.run(study);
  EXPECT_THAT(names(now.samples), ElementsAre("b-1", "b-2", "a-1", "a-2"));
}

TEST(RunStudy, TellsHowFarItIs) {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path());
  runner.run(shell_study({value_cell("a", 1)}, 2));
  ASSERT_THAT(runner.said, SizeIs(4));
  EXPECT_EQ(runner.said[0], "shell: sample 1 of 2, round 1: a");
  EXPECT_THAT(runner.said[1], HasSubstr("a: 0."));
  EXPECT_THAT(runner.said[2], HasSubstr("shell: sample 2 of 2, round 2: a; about 0."));
}

TEST(RunStudy, RefusesSamplesOfOtherWork) {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path());
  runner.run(shell_study({value_cell("a", 1)}, 1));
  const auto complaint = [&](const Study& study) {
    try {
      runner.run(study);
      return std::string();
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
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

TEST(RunStudy, RefusesAProgramThatIsNotThere) {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path() / "out");
  runner.options.program = "/nonexistent/lockstep";
  EXPECT_THROW(runner.run(shell_study({value_cell("a", 1)}, 1)), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out"));
}

/// Has `env` start our program, here a shell.
StudyCell cell_of_env() {
  StudyCell cell = testing::value_cell("a", 3);
  cell.program = "env";
  cell.command.insert(cell.command.begin(), {"FROM={bench}", kThisProgram});
  cell.command[3] += "; echo \"$FROM\"";
  return cell;
}

TEST(RunStudyByAProgram, StartsItFromPathAndPutsOursInItsPlace) {
  const TemporaryFolder folder;
  ShellRunner runner(folder.path());
  const Study study = shell_study({cell_of_env()}, 1);
  const Sample sample = runner.run(study).samples.front();
  EXPECT_EQ(sample.failure, "");
  EXPECT_EQ(sample.values.at("seconds"), 3);
  EXPECT_EQ(sample.command.front(), "env") << "the sample says who started it";
  EXPECT_THAT(sample.command, Contains(kThisProgram));
  EXPECT_EQ(text_of(folder.path() / "runs" / "shell" / "a-1.log"),
      std::filesystem::absolute(folder.path()).string() + "\n");
  EXPECT_EQ(runner.run(study).samples.size(), 1U) << "and goes on with it";
}

TEST(RunStudyByAProgram, NotesOneThatIsMissingAndGoesOn) {
  const TemporaryFolder folder;
  StudyCell missing = cell_of_env();
  missing.id = "missing";
  missing.program = "no-such-launcher";
  ShellRunner runner(folder.path());
  const auto result = runner.run(shell_study({missing, testing::value_cell("b", 1)}, 1));
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

}  // namespace
}  // namespace lockstep::bench
