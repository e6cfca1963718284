// Gives the folder of one run to another: beside it, after it, with its snapshots damaged.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/process/train/run_folder.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SharedFolder : public RunFolder, public ::testing::WithParamInterface<std::string> {};

TEST_P(SharedFolder, ASecondRunIsRefusedAndTheFirstGoesOn) {
  const ResumableRun run(long_flags(GetParam()));
  Command first = run.start();
  ASSERT_TRUE(wait_for_snapshot(run, first));
  const auto owner = nlohmann::json::parse(contents(run.file(".lock")));
  EXPECT_EQ(owner["pid"], run.rank(0));
  for (const char* more : {"--nproc-per-node 1", "--nproc-per-node 2", "--overwrite"}) {
    const Ended second = run.attempt(more).with_code(2);
    EXPECT_THAT(second.err, AllOf(HasSubstr("a run is under way in " + run.output()),
                                HasSubstr("process " + owner["pid"].dump() + " on ")));
  }
  const std::size_t lines = run.lines();
  ASSERT_TRUE(wait_for_lines(run, first, lines + 10));
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().code(), 75);
  expect_each_step_once(run);
  EXPECT_FALSE(fs::exists(run.file(".lock")));
  EXPECT_TRUE(run.newest().refused.empty());
}

TEST_P(SharedFolder, OfTwoAtTheSameMomentOneTrains) {
  const ResumableRun run(long_flags(GetParam()));
  Command one = run.start(), other = run.start();
  Command* left = nullptr;
  const auto has_ended = [](const Command& command) { return !is_running(command.pid()); };
  ASSERT_TRUE(eventually([&] {
    left = has_ended(one) ? &other : has_ended(other) ? &one : nullptr;
    return left != nullptr;
  }));
  const Ended refused = (left == &one ? other : one).wait().with_code(2);
  EXPECT_THAT(refused.err, HasSubstr("a run is under way in"));
  ASSERT_TRUE(wait_for_snapshot(run, *left));
  left->signal(SIGTERM);
  EXPECT_EQ(left->wait().code(), 75);
  expect_each_step_once(run);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, SharedFolder, ::testing::Values(std::string(), "--nproc-per-node 2"));

TEST_F(RunFolder, TheDeadGiveItFree) {
  const ResumableRun run(long_flags());
  Command first = run.start();
  ASSERT_TRUE(wait_for_snapshot(run, first));
  ::kill(run.rank(0), SIGKILL);
  EXPECT_EQ(first.wait().code(), 137);
  EXPECT_TRUE(fs::exists(run.file(".lock")));
  EXPECT_THAT(run.complete("--max-time 0.001s").err, HasSubstr("going on from"));
}

TEST_F(RunFolder, AFinishedRunIsNotOverwrittenWithoutAWord) {
  const ResumableRun run(flags());
  run.complete();
  damage_snapshots(run);
  std::ofstream(run.file("notes.txt")) << "mine";
  const Files before = files_of(run);
  for (const std::string more :
      {"--model toy --data mock --max-steps 5", "", "--nproc-per-node 2"}) {
    const Ended refused = run.attempt(more).with_code(2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr(run.output()), HasSubstr("model.safetensors"),
                                 HasSubstr("--overwrite"), HasSubstr("cannot be used")));
    EXPECT_TRUE(files_of(run) == before) << more;
  }
  run.attempt("--model toy --data mock --max-steps 5 --overwrite").with_code(0);
  EXPECT_EQ(run.summary()["model"], "toy");
  EXPECT_EQ(run.summary()["restarts"], 0);
  EXPECT_EQ(contents(run.file("notes.txt")), "mine");
  EXPECT_TRUE(run.newest().refused.empty()) << "the damaged ones are gone";
  expect_each_step_once(run);
}

TEST_F(RunFolder, ARunOfAnotherTrainingIsReplacedOnlyIfAsked) {
  const ResumableRun run(flags());
  run.complete();
  const Files before = files_of(run);
  const Ended refused = run.attempt("--lr 0.5").with_code(3);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--lr: the snapshot has"), HasSubstr("--overwrite")));
  EXPECT_TRUE(files_of(run) == before);
  EXPECT_THAT(run.complete("--overwrite").err, HasSubstr("going on from")) << "it is this one";
  const Ended anew = run.complete("--lr 0.5 --overwrite");
  EXPECT_THAT(anew.err, HasSubstr("gives way to this one"));
  EXPECT_TRUE(run.summary()["resumed_from"].is_null());
  EXPECT_EQ(run.complete("--lr 0.5").err.find("anew"), std::string::npos) << "it is the run now";
  EXPECT_EQ(run.attempt("--lr 0.5 --resume never").code(), 2);
  run.complete("--lr 0.5 --resume never --overwrite");
  EXPECT_EQ(run.summary()["restarts"], 0);
}

// Killed before the first snapshot there is nothing to lose, unless the flags are others.
TEST_F(RunFolder, ARunThatHadJustBegunBeginsAgain) {
  const ResumableRun run(long_flags("--snapshot-interval 1h"));
  Command first = run.start();
  ASSERT_TRUE(wait_for_lines(run, first));
  ::kill(run.rank(0), SIGKILL);
  first.wait();
  const Ended refused = run.attempt("--smoothing 0.1").with_code(2);
  EXPECT_THAT(refused.err, HasSubstr("--smoothing: config.toml has 0.0, now 0.1"));
  EXPECT_THAT(run.complete("--max-steps 3").err, HasSubstr("training starts anew"));
  EXPECT_EQ(run.summary()["restarts"], 1);
}

TEST_F(RunFolder, OneWhoseSnapshotsAreAllDamagedIsNotOverwritten) {
  const ResumableRun run(long_flags());
  Command first = run.start();
  ASSERT_TRUE(wait_for_snapshot(run, first));
  ::kill(run.rank(0), SIGKILL);
  first.wait();
  damage_snapshots(run);
  const Files before = files_of(run);
  const Ended refused = run.attempt().with_code(2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("which holds snapshots that cannot be used"),
                               HasSubstr("state.json"), HasSubstr("--overwrite")));
  EXPECT_TRUE(files_of(run) == before);
  EXPECT_THAT(run.complete("--max-steps 3 --overwrite").err, HasSubstr("training starts anew"));
}

TEST_F(RunFolder, TheBestWeightsOfARunWithoutSnapshotsAreNotOverwritten) {
  const ResumableRun run(
      flags("--epochs 2000 --opt sgd --lr 1e-30 --snapshot-interval never"));  // the first is best
  Command first = run.start();
  ASSERT_TRUE(first.wait_until([&] { return fs::exists(run.file("best.safetensors")); }));
  ::kill(run.rank(0), SIGKILL);
  first.wait();
  const Files before = files_of(run);
  const Ended refused = run.attempt().with_code(2);
  EXPECT_THAT(refused.err, HasSubstr("the weights of its best epoch (best.safetensors)"));
  EXPECT_TRUE(files_of(run) == before);
}

TEST_F(RunFolder, OverwriteTouchesNoFolderThatIsNoRuns) {
  const ResumableRun run(flags("--max-steps 3 --overwrite"));
  fs::create_directories(run.output());
  std::ofstream(run.file("thesis.tex")) << "precious";
  EXPECT_THAT(run.attempt().with_code(2).err, HasSubstr("thesis.tex"));
  EXPECT_EQ(contents(run.file("thesis.tex")), "precious");
  fs::remove(run.file("thesis.tex"));
  EXPECT_EQ(run.attempt().code(), 0);
}

// A launcher's ranks that start again go on; they do not overwrite what their first start made.
TEST_F(RunFolder, ARestartDoesNotOverwriteAgain) {
  const ResumableRun run("");
  Command command(words("train " + long_flags("--nproc-per-node 2 --resume never --overwrite") +
                        " --output " + run.output()));
  ASSERT_TRUE(wait_for_snapshot(run, command));
  ::kill(run.rank(1), SIGKILL);
  ASSERT_TRUE(
      command.wait_until([&] { return command.err().find("going on from") != std::string::npos; }));
  ASSERT_TRUE(wait_for_lines(run, command, run.lines() + 20)) << "it trains again";
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().code(), 75);
}

}  // namespace
}  // namespace lockstep::testing
