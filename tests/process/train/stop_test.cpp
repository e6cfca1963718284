// Stops `lockstep train` by signals and by time, goes on later, elsewhere, with other numbers of
// ranks.

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class TrainStop : public ShortRuns {};

TEST_F(TrainStop, ASignalToOneRankStopsAllAfterTheSameStep) {
  const std::string two = "--nproc-per-node 2";
  const ResumableRun whole(flags(two)), stopped(flags(two));
  whole.complete();
  stopped.interrupted(SIGUSR1, 1, 7).with_code(75);
  const Json summary = stopped.summary();
  EXPECT_EQ(summary["stopped_by"], "signal");
  EXPECT_EQ(summary["exit"], 75);
  EXPECT_LT(summary["steps"], whole.summary()["steps"]);
  EXPECT_TRUE(std::filesystem::exists(summary["snapshot"].get<std::string>()));
  const Ended ended = stopped.complete();
  EXPECT_THAT(ended.err, HasSubstr("after step " + summary["steps"].dump() + "\n"));
  expect_same(whole.outcome(), stopped.outcome());
}

// Of a set so large that the signal comes within its first epoch.
TEST_F(TrainStop, BeforeAnEpochIsOverNoTableIsPrinted) {
  const IdxFiles large(16000, 40);
  const ResumableRun run(
      large.flag() + " --batch-size 2 --epochs 1 --log-interval 1 --snapshot-interval 3steps");
  Command command = run.start();
  command.wait_until([&] { return run.lines() >= 1; });
  command.signal(SIGTERM);
  const Ended ended = command.wait().with_code(75);
  EXPECT_TRUE(run.summary()["epochs"].empty());
  EXPECT_THAT(ended.out, HasSubstr("The run's files are in "));
  EXPECT_THAT(ended.out, Not(HasSubstr("samples/s"))) << "the head of a table without rows";
}

TEST_F(TrainStop, MoreStepsGoOnAsIfThereHadBeenNoEnd) {
  const ResumableRun whole(flags()), parts(flags());
  whole.complete("--max-steps 60");
  parts.complete("--max-steps 31");
  parts.complete("--max-steps 60");
  EXPECT_EQ(whole.summary()["parameters_hash"], parts.summary()["parameters_hash"]);
  EXPECT_EQ(whole.summary()["best"], parts.summary()["best"]);
}

TEST_F(TrainStop, WithoutSavingThereIsNoSnapshot) {
  const ResumableRun run(flags());
  run.complete("--snapshot-interval never --max-steps 7");
  EXPECT_TRUE(run.summary()["snapshot"].is_null());
  EXPECT_FALSE(std::filesystem::exists(run.file("snapshots")));
  EXPECT_EQ(run.summary()["steps"], 7);
}

TEST_F(TrainStop, AFinishedRunIsNotTrainedAgainAndASnapshotServesAnotherFolder) {
  const ResumableRun whole(flags()), first(flags()), second(flags());
  whole.complete();
  const Json before = whole.summary();
  whole.complete();
  for (const char* field :
      {"parameters_hash", "steps", "best", "epochs", "test_accuracy", "snapshot"})
    EXPECT_EQ(whole.summary()[field], before[field]) << field;
  first.complete("--max-steps 31");
  second.complete("--resume " + first.output());
  EXPECT_EQ(second.summary()["parameters_hash"], whole.summary()["parameters_hash"]);
  EXPECT_EQ(second.summary()["epochs"].size(), 4U);
  const Ended older = first.attempt("--resume " + first.file("snapshots/step-00000030"));
  EXPECT_EQ(older.code(), 2) << "a later snapshot would hide what comes now";
  EXPECT_THAT(older.err, HasSubstr("step-00000031"));
}

TEST_F(TrainStop, OtherNumbersOfRanksTrainOnTheRestOfTheEpoch) {
  const ResumableRun two(flags("--nproc-per-node 2 --max-steps 7"));
  two.complete();
  for (const std::string ranks : {"1", "2", "4"}) {
    const ResumableRun other(flags("--nproc-per-node " + ranks + " --epochs 2"));
    other.complete("--resume " + two.output());
    const Json summary = other.summary();
    for (const Json& epoch : summary["epochs"]) EXPECT_EQ(epoch["samples"], 204) << ranks;
    EXPECT_GT(summary["test_accuracy"], 0.2);
  }
}

TEST_F(TrainStop, AnotherCutOfTheModelTakesTheSameSnapshot) {
  const ResumableRun serial(flags("--max-steps 7")),
      pipeline(flags("--parallel pp --nproc-per-node 2 --chunks 2 --max-steps 7"));
  pipeline.complete();
  serial.complete("--resume " + pipeline.output());
  EXPECT_EQ(serial.summary()["parameters_hash"], pipeline.summary()["parameters_hash"]);
}

}  // namespace
}  // namespace lockstep::testing
