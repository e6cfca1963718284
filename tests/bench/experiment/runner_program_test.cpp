// Cells that another program than ours starts.

#include <filesystem>
#include <gmock/gmock.h>

#include "tests/bench/experiment/shell_study.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/runner.h"

namespace lockstep::bench {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::shell_study;
using testing::ShellRunner;
using testing::text_of;

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
