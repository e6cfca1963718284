// Stops `lockstep train` by signals and by time, goes on later, elsewhere, with other numbers of
// ranks.

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/process/resumed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class TrainStop : public ResumedRun {
 protected:
  void expect_stop_and_same_bits(const Words& how, int signal, int rank) {
    const Ended whole = train(words("whole", how));
    ASSERT_EQ(whole.code, 0) << whole.err;
    const Ended stopped = interrupt("stopped", how, signal, rank, 7);
    ASSERT_EQ(stopped.code, 75) << stopped.err;
    EXPECT_EQ(summary("stopped")["stopped_by"], "signal");
    EXPECT_EQ(summary("stopped")["exit"], 75);
    const Json steps = summary("stopped")["steps"];
    EXPECT_LT(steps, summary("whole")["steps"]);
    EXPECT_TRUE(std::filesystem::exists(summary("stopped")["snapshot"].get<std::string>()));
    const Ended ended = go_on("stopped", how);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("after step " + steps.dump() + "\n"));
    expect_same("whole", "stopped");
  }
};

TEST_F(TrainStop, ASignalToOneRankStopsAllAfterTheSameStep) {
  expect_stop_and_same_bits({"--nproc-per-node", "2"}, SIGUSR1, 1);
}

TEST_F(TrainStop, MoreStepsGoOnAsIfThereHadBeenNoEnd) {
  ASSERT_EQ(train(words("whole", {"--max-steps", "60"})).code, 0);
  ASSERT_EQ(train(words("parts", {"--max-steps", "31"})).code, 0);
  const Ended ended = go_on("parts", {"--max-steps", "60"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(summary("whole")["parameters_hash"], summary("parts")["parameters_hash"]);
  EXPECT_EQ(summary("whole")["best"], summary("parts")["best"]);
}

TEST_F(TrainStop, AFinishedRunIsNotTrainedAgain) {
  ASSERT_EQ(train(words("run", {})).code, 0);
  const Json before = summary("run");
  const Ended again = go_on("run", {});
  ASSERT_EQ(again.code, 0) << again.err;
  for (const char* field :
       {"parameters_hash", "steps", "best", "epochs", "test_accuracy", "snapshot"})
    EXPECT_EQ(summary("run")[field], before[field]) << field;
}

TEST_F(TrainStop, AnotherFolderGoesOnFromASnapshotOfThisOne) {
  ASSERT_EQ(train(words("whole", {})).code, 0);
  ASSERT_EQ(train(words("first", {"--max-steps", "31"})).code, 0);
  const Ended ended = train(words("second", {"--resume", run("first")}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(summary("second")["parameters_hash"], summary("whole")["parameters_hash"]);
  EXPECT_EQ(summary("second")["epochs"].size(), 4U);
  const Ended older =
      train(words("first", {"--resume", run("first") + "/snapshots/step-00000030"}));
  EXPECT_EQ(older.code, 2) << "a later snapshot would hide what comes now";
  EXPECT_THAT(older.err, HasSubstr("step-00000031"));
}

TEST_F(TrainStop, OtherNumbersOfRanksTrainOnTheRestOfTheEpoch) {
  const Words two = {"--nproc-per-node", "2", "--max-steps", "7"};
  ASSERT_EQ(train(words("two", two)).code, 0);
  for (const char* ranks : {"1", "2", "4"}) {
    const Ended ended =
        train(words(ranks, {"--resume", run("two"), "--nproc-per-node", ranks, "--epochs", "2"}));
    ASSERT_EQ(ended.code, 0) << ended.err;
    for (const Json& epoch : summary(ranks)["epochs"]) EXPECT_EQ(epoch["samples"], 204) << ranks;
    EXPECT_GT(summary(ranks)["test_accuracy"], 0.2);
  }
}

TEST_F(TrainStop, AnotherCutOfTheModelTakesTheSameSnapshot) {
  const Words pipeline = {
      "--parallel", "pp", "--nproc-per-node", "2", "--chunks", "2", "--max-steps", "7"};
  ASSERT_EQ(train(words("pipeline", pipeline)).code, 0);
  const Ended serial = train(words("serial", {"--resume", run("pipeline"), "--max-steps", "7"}));
  ASSERT_EQ(serial.code, 0) << serial.err;
  EXPECT_EQ(summary("serial")["parameters_hash"], summary("pipeline")["parameters_hash"]);
}

}  // namespace
}  // namespace lockstep::testing
