// Trains through the command with schedules, accumulation, averages and all else that decides what
// a step does: the same whatever the way of spreading the model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainLearning : public ::testing::Test {
 protected:
  TrainedRun run(const std::string& common, const std::string& more = "") const {
    return trained_run(data_.flag() + " --opt sgd " + common + " " + more);
  }

  IdxFiles data_{256, 64};
};

class Accumulation : public TrainLearning, public ::testing::WithParamInterface<TrainWay> {};

// 36 samples a step, so the last of 8 steps has only 4; with 12 a batch that is a third of one.
TEST_P(Accumulation, IsAsTheWholeBatchAtOnce) {
  static const TrainedRun kAlone = run("--epochs 1", "--batch-size 36");  // once for all ways
  const TrainedRun spread = run("--epochs 1 --grad-accum-steps 3", GetParam().flags);
  expect_near(spread.losses(), kAlone.losses(), 8);
  expect_near(spread.values("val", "loss"), kAlone.values("val", "loss"), 1);
}

INSTANTIATE_TEST_SUITE_P(Ways, Accumulation,
    ::testing::Values(TrainWay{"OneRank", "--batch-size 12"},
        TrainWay{"Replicas", "--parallel dp --places 2 --batch-size 6"},
        TrainWay{"Ranks", "--nproc-per-node 2 --batch-size 6"},
        TrainWay{"Stages", "--parallel mp --batch-size 12"},
        TrainWay{"StagesOnRanks", "--parallel pp --nproc-per-node 2 --chunks 4 --batch-size 12"},
        TrainWay{"Pipelines", "--parallel ddp+pp --nproc-per-node 4 --chunks 2 --batch-size 6"},
        TrainWay{
            "ReplicasOfStages", "--parallel ddp+mp --nproc-per-node 2 --places 2 --batch-size 6"}),
    [](const auto& way) { return way.param.name; });

// Everything that decides what a step does, together.
TEST_F(TrainLearning, AllSettingsDoTheSameWhateverTheWay) {
  const std::string common =
      "--epochs 3 --limit-train-batches 4 --grad-accum-steps 2 --sched cosine --warmup-steps 2 "
      "--smoothing 0.1 --weight-decay 0.1 --weight-decay-on weights --clip-grad 0.5 --model-ema "
      "--model-ema-decay 0.5";
  const TrainedRun alone = run(common, "--batch-size 32");
  EXPECT_LT(alone.losses().back(), alone.losses().front());
  for (const std::string way : {"--nproc-per-node 2 --batch-size 16 --shard-optimizer",
           "--parallel dp --places 2 --batch-size 16", "--parallel pp --batch-size 32",
           "--parallel ddp+pp --nproc-per-node 4 --batch-size 16"}) {
    const TrainedRun spread = run(common, way);
    expect_near(spread.losses(), alone.losses(), 6);
    expect_near(spread.values("val", "loss"), alone.values("val", "loss"), 3);
    expect_near(spread.values("val-ema", "loss"), alone.values("val-ema", "loss"), 3);
    expect_near(spread.values("val-ema", "accuracy5"), alone.values("val-ema", "accuracy5"), 3);
    EXPECT_EQ(spread.values("train", "lr"), alone.values("train", "lr"));
  }
}

TEST_F(TrainLearning, EachStepReportsTheRateThatItUsed) {
  const std::string common = "--epochs 4 --limit-train-batches 2 --batch-size 32 --lr 0.1";
  const TrainedRun epochs = run(common, "--sched step --decay-epochs 1 --decay-rate 0.5");
  EXPECT_THAT(epochs.values("train", "lr"),
      ElementsAre(0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125));
  const TrainedRun updates = run(common,
      "--sched poly --sched-on-updates --warmup-epochs 1 --warmup-lr 0.05 --lr-scale linear "
      "--nproc-per-node 2");
  const auto rates = updates.values("train", "lr");
  ASSERT_EQ(rates.size(), 8U);
  EXPECT_DOUBLE_EQ(rates[0], 0.05);
  EXPECT_DOUBLE_EQ(rates[1], 0.125) << "half way up to 0.2, the rate for two ranks";
  EXPECT_DOUBLE_EQ(rates[2], 0.2);
  EXPECT_DOUBLE_EQ(rates[7], 0.2 / 6);
  const TrainedRun accumulated = run(common, "--lr-scale sqrt --grad-accum-steps 4 --max-steps 1");
  EXPECT_THAT(accumulated.values("train", "lr"), ElementsAre(0.2));
}

TEST_F(TrainLearning, ARateFallsWhereNothingImproves) {
  const TrainedRun stuck = run("--epochs 4 --limit-train-batches 1 --lr 1e-6",
      "--sched plateau --patience-epochs 0 --eval-metric top1");
  const auto rates = stuck.values("train", "lr");
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_DOUBLE_EQ(rates[1], 1e-6);
  EXPECT_DOUBLE_EQ(rates[2], 1e-7);
  EXPECT_EQ(stuck.summary["best"]["epoch"], 1) << "of equal ones the first";
  EXPECT_EQ(stuck.summary["eval_metric"], "top1");
}

TEST_F(TrainLearning, AveragesThatForgetAtOnceAreTheWeights) {
  const std::string common = "--epochs 2 --model-ema --model-ema-decay 0";
  for (const std::string way : {"", "--nproc-per-node 2", "--parallel mp --nproc-per-node 2"}) {
    const TrainedRun averaged = run(common, way);
    EXPECT_EQ(averaged.values("val-ema", "loss"), averaged.values("val", "loss"));
    const auto& last = averaged.summary["epochs"][1];
    for (const std::string measure : {"loss", "accuracy", "accuracy5"})
      EXPECT_EQ(last["ema_" + measure], averaged.values("val", measure)[1]) << measure;
    EXPECT_THAT(averaged.last, ::testing::Not(::testing::IsEmpty()));
    EXPECT_EQ(averaged.last_ema, averaged.last) << "other bytes";
  }
}

TEST_F(TrainLearning, TheBestWeightsAreTheAveragesWhereThereAreAny) {
  const TrainedRun averaged =
      run("--epochs 1 --model-ema", "--model-ema-decay 0.5 --batch-size 32");
  EXPECT_EQ(averaged.best, averaged.last_ema);
  EXPECT_NE(averaged.best, averaged.last);
  EXPECT_EQ(averaged.summary["best"]["value"], averaged.values("val-ema", "loss")[0]);
  EXPECT_NE(averaged.summary["best"]["value"], averaged.values("val", "loss")[0]);
}

TEST_F(TrainLearning, KeepsTheWeightsOfTheBestEpoch) {
  // The second epoch has a rate that undoes the first.
  const std::string common = "--epochs 2 --sched onecycle --lr 30 --div-factor 3000";
  const TrainedRun worse = run(common, "--pct-start 0.6");
  const auto losses = worse.values("val", "loss");
  ASSERT_GT(losses[1], losses[0]) << "the test needs a run that gets worse";
  EXPECT_EQ(worse.summary["best"]["epoch"], 1);
  EXPECT_EQ(worse.summary["best"]["value"], losses[0]);
  EXPECT_NE(worse.best, worse.last);
  EXPECT_TRUE(worse.last_ema.empty());
  EXPECT_EQ(worse.summary["best_test_loss"], losses[0]) << "the test set chose the epoch";
  EXPECT_TRUE(worse.values("test-best", "loss").empty());
}

// Beside a run that ends after the best epoch, and one that evaluates the last alone.
TEST_F(TrainLearning, TestsTheBestWeightsAndKeepsTheLast) {
  // The second epoch has a rate that undoes the first.
  const std::string common =
      "--epochs 2 --warmup-epochs 1 --warmup-lr 0.02 --lr 20 --val-split 0.25 ";
  for (const std::string way :
      {"--batch-size 32", "--batch-size 32 --model-ema --model-ema-decay 0.5",
          "--batch-size 16 --parallel dp --places 2", "--batch-size 16 --nproc-per-node 2",
          "--batch-size 32 --parallel pp --nproc-per-node 2"}) {
    const TrainedRun whole = run(common, way);
    ASSERT_EQ(whole.summary["best"]["epoch"], 1) << way << ": it needs a run that gets worse";
    const TrainedRun first = run(common + "--max-steps 6", way);
    const bool averaged = way.find("--model-ema") != std::string::npos;
    EXPECT_EQ(
        whole.summary["best_test_loss"], first.values(averaged ? "test-ema" : "test", "loss").at(0))
        << way;
    EXPECT_EQ(whole.summary["best_test_loss"], first.summary["best_test_loss"]) << way;
    EXPECT_EQ(whole.values("test-best", "loss").at(0), whole.summary["best_test_loss"]);
    EXPECT_NE(whole.summary["best_test_loss"], whole.summary["test_loss"]);
    EXPECT_TRUE(first.values("test-best", "loss").empty()) << "the last epoch was the best";
    const TrainedRun without = run(common + "--val-interval 0", way);
    EXPECT_TRUE(without.values("test-best", "loss").empty());
    EXPECT_EQ(whole.last, without.last) << way << ": other bytes";
    EXPECT_EQ(whole.last_ema, without.last_ema);
    EXPECT_EQ(whole.summary["parameters_hash"], without.summary["parameters_hash"]);
  }
}

TEST_F(TrainLearning, TheBestWeightsAreWholeWhereverTheStagesAre) {
  const std::string common = "--epochs 1 --batch-size 32";
  const TrainedRun alone = run(common);
  EXPECT_THAT(alone.best, ::testing::Not(::testing::IsEmpty()));
  for (const std::string way : {"--parallel mp", "--parallel mp --nproc-per-node 2"}) {
    const TrainedRun staged = run(common, way);
    EXPECT_EQ(staged.best, alone.best) << "other bytes";
  }
}

TEST_F(TrainLearning, WithAValidationSetTheTestComesAtTheEnd) {
  const TrainedRun split = run("--epochs 2 --val-split 0.25", "--model-ema");
  EXPECT_EQ(split.values("val", "loss").size(), 2U);
  ASSERT_EQ(split.values("test", "loss").size(), 1U);
  EXPECT_EQ(split.values("test-ema", "loss").size(), 1U);
  EXPECT_EQ(split.summary["test_loss"], split.values("test", "loss")[0]);
  EXPECT_NE(split.summary["test_loss"], split.summary["epochs"][1]["val_loss"]);
  EXPECT_THAT(split.ended.out, HasSubstr("val loss"));
  EXPECT_THAT(split.ended.out, HasSubstr("test accuracy"));
}

TEST_F(TrainLearning, AWarmupThatTakesAllEpochsIsRefused) {
  const TemporaryFolder folder;
  const Ended refused = train(data_.flag() + " --output " + folder.file("run") +
                              " --epochs 2 --sched cosine --warmup-epochs 2");
  EXPECT_EQ(refused.code(), 2);
  EXPECT_THAT(refused.err, HasSubstr("leaves none for --sched"));
}

}  // namespace
}  // namespace lockstep::testing
