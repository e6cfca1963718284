// Trains by every way of spreading a model through the command: the same losses and parameters as
// alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train_idx_files.h"
#include "tests/process/trained_run.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class TrainWays : public ::testing::Test {
 protected:
  void SetUp() override { write_idx_files(data_.str(), 256, 64); }

  TrainedRun run(const Words& words) const {
    Words all = {"--data", "mnist:" + data_.str(), "--max-steps", "6", "--opt", "sgd"};
    all.insert(all.end(), words.begin(), words.end());
    return trained_run(all);
  }

  // One process alone with the whole batch of 32.
  void expect_as_alone(const Words& words, const std::string& announced) const {
    const TrainedRun alone = run({"--batch-size", "32"});
    const TrainedRun spread = run(words);
    ASSERT_EQ(spread.ended.code, 0) << spread.ended.err;
    EXPECT_THAT(spread.ended.err, HasSubstr(announced));
    ASSERT_EQ(spread.losses().size(), 6U);
    for (std::size_t step = 0; step < 6; ++step)
      EXPECT_NEAR(spread.losses()[step], alone.losses()[step], 1e-4) << "step " << step;
    EXPECT_LT(alone.losses().back(), alone.losses().front());
    EXPECT_NEAR(
        spread.summary["test_accuracy"].get<double>(), alone.summary["test_accuracy"].get<double>(),
        0.02);
  }

  TemporaryFolder data_;
};

TEST_F(TrainWays, DataParallelInOneProcess) {
  expect_as_alone({"--parallel", "dp", "--places", "2", "--batch-size", "16"}, "dp: 2 replicas");
}

TEST_F(TrainWays, DistributedDataParallelInOneProcess) {
  expect_as_alone({"--parallel", "ddp", "--places", "2", "--batch-size", "16"}, "ddp: 2 replicas");
}

TEST_F(TrainWays, ModelParallelInOneProcess) {
  expect_as_alone({"--parallel", "mp", "--batch-size", "32"}, "mp: 2 stages, one after the other");
}

TEST_F(TrainWays, ModelParallelOverRanks) {
  expect_as_alone(
      {"--parallel", "mp", "--batch-size", "32", "--nproc-per-node", "2"}, "mp: 2 stages");
}

TEST_F(TrainWays, PipelineInOneProcess) {
  expect_as_alone(
      {"--parallel", "pp", "--batch-size", "32", "--chunks", "4", "--schedule", "zero-bubble"},
      "pp: 2 stages, zero-bubble, 4 chunks, bubble 8 %");
}

TEST_F(TrainWays, PipelineOverRanks) {
  expect_as_alone(
      {"--parallel", "pp", "--batch-size", "32", "--chunks", "4", "--nproc-per-node", "2"},
      "pp: 2 stages, 1F1B, 4 chunks, bubble 20 %");
}

TEST_F(TrainWays, InterleavedPipelineOverRanks) {
  expect_as_alone(
      {"--parallel", "pp", "--batch-size", "32", "--schedule", "interleaved", "--balance", "count",
       "--nproc-per-node", "2"},
      "pp: 4 stages on 2 ranks, interleaved 1F1B, 8 chunks");
}

TEST_F(TrainWays, PipelinesOverRanks) {
  expect_as_alone(
      {"--parallel", "ddp+pp", "--batch-size", "16", "--stages", "2", "--nproc-per-node", "4"},
      "ddp+pp: 2 replicas x 2 stages, 1F1B, 8 chunks, bubble 11 %");
}

TEST_F(TrainWays, PipelinesInOneProcess) {
  expect_as_alone(
      {"--parallel", "ddp+pp", "--batch-size", "16", "--stages", "2", "--places", "4"},
      "ddp+pp: 2 replicas x 2 stages");
}

TEST_F(TrainWays, ModelParallelReplicasWithTheirStagesInPlaces) {
  expect_as_alone(
      {"--parallel", "ddp+mp", "--batch-size", "16", "--nproc-per-node", "2", "--places", "2"},
      "ddp+mp: 2 replicas x 2 stages, one after the other");
}

// Places share one process, ranks have one each.
TEST_F(TrainWays, PeakMemoryIsThatOfAllProcessesTogether) {
  const auto peak = [&](const Words& words) {
    const TrainedRun one = run(words);
    EXPECT_EQ(one.ended.code, 0) << one.ended.err;
    return one.summary["peak_memory_bytes"].get<double>();
  };
  const double alone = peak({"--batch-size", "32"});
  constexpr double kMebibyte = 1 << 20;
  EXPECT_GT(alone, 50 * kMebibyte) << "the library alone needs more";
  const double places = peak({"--parallel", "ddp", "--places", "2", "--batch-size", "16"});
  EXPECT_LT(places, 1.5 * alone);
  const double ranks = peak({"--parallel", "ddp", "--nproc-per-node", "2", "--batch-size", "16"});
  EXPECT_GT(ranks, 1.5 * alone);
  EXPECT_LT(ranks, 4 * alone);
}

// The norm is that of the whole model, wherever its parameters are.
TEST_F(TrainWays, ClippedGradientsAndAShardedOptimizer) {
  const Words clipped = {"--opt", "adam", "--clip-grad", "0.1"};
  const auto with = [&](Words words) {
    words.insert(words.end(), clipped.begin(), clipped.end());
    return words;
  };
  const TrainedRun alone = run(with({"--batch-size", "32"}));
  const TrainedRun sharded =
      run(with({"--batch-size", "16", "--nproc-per-node", "2", "--shard-optimizer"}));
  const TrainedRun pipelines = run(with(
      {"--parallel", "ddp+pp", "--batch-size", "16", "--nproc-per-node", "4",
       "--shard-optimizer"}));
  ASSERT_EQ(sharded.losses().size(), 6U) << sharded.ended.err;
  ASSERT_EQ(pipelines.losses().size(), 6U) << pipelines.ended.err;
  for (std::size_t step = 0; step < 6; ++step) {
    EXPECT_NEAR(sharded.losses()[step], alone.losses()[step], 1e-4) << "step " << step;
    EXPECT_NEAR(pipelines.losses()[step], alone.losses()[step], 1e-4) << "step " << step;
  }
}

TEST_F(TrainWays, AModelInStagesHasTheHashOfTheWholeModel) {
  const TrainedRun alone = run({"--batch-size", "32"});
  const TrainedRun staged = run({"--batch-size", "32", "--parallel", "mp"});
  const TrainedRun ranks = run({"--batch-size", "32", "--parallel", "mp", "--nproc-per-node", "2"});
  ASSERT_EQ(ranks.ended.code, 0) << ranks.ended.err;
  EXPECT_EQ(staged.summary["parameters_hash"], ranks.summary["parameters_hash"]);
  EXPECT_EQ(alone.summary["parameters_hash"], ranks.summary["parameters_hash"]);
}

TEST_F(TrainWays, ImpossibleCombinationsAreRefusedWithCodeTwo) {
  EXPECT_EQ(run({"--parallel", "dp", "--nproc-per-node", "2"}).ended.code, 2);
  EXPECT_EQ(run({"--parallel", "ddp+pp", "--nproc-per-node", "3"}).ended.code, 2);
  EXPECT_EQ(run({"--parallel", "pp", "--stages", "99", "--places", "99"}).ended.code, 2);
  EXPECT_EQ(run({"--parallel", "pp", "--chunks", "0"}).ended.code, 2);
  EXPECT_EQ(run({"--parallel", "mp", "--schedule", "gpipe"}).ended.code, 2);
  const auto unknown = run({"--parallel", "pp", "--schedule", "1f2b"});
  EXPECT_EQ(unknown.ended.code, 2);
  EXPECT_THAT(unknown.ended.err, HasSubstr("1f1b"));
}

}  // namespace
}  // namespace lockstep::testing
