// Trains by every way of spreading a model through the command: the same losses and parameters as
// alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class TrainWays : public ::testing::Test {
 protected:
  TrainedRun run(const std::string& flags) const {
    return trained_run(data_.flag() + " --max-steps 6 --opt sgd " + flags);
  }

  IdxFiles data_{256, 64};
};

struct AnnouncedWay {
  std::string name, flags, announced;
};

const std::vector<AnnouncedWay> kWays = {
    {"Dp", "--parallel dp --places 2 --batch-size 16", "dp: 2 replicas"},
    {"Ddp", "--parallel ddp --places 2 --batch-size 16", "ddp: 2 replicas"},
    {"DdpRecomputed", "--parallel ddp --nproc-per-node 2 --batch-size 16 --checkpoint always",
        "ddp: 2 replicas"},
    {"Mp", "--parallel mp --batch-size 32", "mp: 2 stages, one after the other"},
    {"MpOnRanks", "--parallel mp --batch-size 32 --nproc-per-node 2", "mp: 2 stages"},
    {"Pp", "--parallel pp --batch-size 32 --chunks 4 --schedule zero-bubble",
        "pp: 2 stages, zero-bubble, 4 chunks, bubble 8 %"},
    {"PpOnRanks", "--parallel pp --batch-size 32 --chunks 4 --nproc-per-node 2",
        "pp: 2 stages, 1F1B, 4 chunks, bubble 20 %"},
    {"PpOverGloo", "--parallel pp --batch-size 32 --chunks 4 --nproc-per-node 2 --backend gloo",
        "pp: 2 stages, 1F1B, 4 chunks, bubble 20 %"},
    {"Interleaved",
        "--parallel pp --batch-size 32 --schedule interleaved --balance count --nproc-per-node 2",
        "pp: 4 stages on 2 ranks, interleaved 1F1B, 8 chunks"},
    {"DdpPpOnRanks", "--parallel ddp+pp --batch-size 16 --stages 2 --nproc-per-node 4",
        "ddp+pp: 2 replicas x 2 stages, 1F1B, 8 chunks, bubble 11 %"},
    {"DdpPp", "--parallel ddp+pp --batch-size 16 --stages 2 --places 4",
        "ddp+pp: 2 replicas x 2 stages"},
    {"DdpMp", "--parallel ddp+mp --batch-size 16 --nproc-per-node 2 --places 2",
        "ddp+mp: 2 replicas x 2 stages, one after the other"},
};

class EachTrainWay : public TrainWays, public ::testing::WithParamInterface<AnnouncedWay> {};

// Alone it is one process with the whole batch of 32.
TEST_P(EachTrainWay, IsAsAlone) {
  static const TrainedRun kAlone = run("--batch-size 32");  // once for all ways
  const TrainedRun spread = run(GetParam().flags);
  EXPECT_THAT(spread.ended.err, HasSubstr(GetParam().announced));
  expect_near(spread.losses(), kAlone.losses(), 6);
  EXPECT_LT(kAlone.losses().back(), kAlone.losses().front());
  EXPECT_NEAR(spread.summary["test_accuracy"].get<double>(),
      kAlone.summary["test_accuracy"].get<double>(), 0.02);
}

INSTANTIATE_TEST_SUITE_P(
    Each, EachTrainWay, ::testing::ValuesIn(kWays), [](const auto& way) { return way.param.name; });

// Places share one process, ranks have one each. How much a process needs is the machine's affair.
TEST_F(TrainWays, PeakMemoryIsThatOfAllProcessesTogether) {
  const auto peak = [&](const std::string& flags) {
    const TrainedRun one = run(flags);
    return one.summary["peak_memory_bytes"].get<double>();
  };
  const double alone = peak("--batch-size 32");
  const double places = peak("--parallel ddp --places 2 --batch-size 16");
  const double ranks = peak("--parallel ddp --nproc-per-node 2 --batch-size 16");
  EXPECT_GT(alone, 0);
  EXPECT_GT(ranks, alone);
  EXPECT_GT(ranks, places) << "each process has its libraries, threads share them";
}

// The norm is that of the whole model, wherever its parameters are.
TEST_F(TrainWays, ClippedGradientsAndAShardedOptimizer) {
  const std::string clipped = "--opt adam --clip-grad 0.1 ";
  const TrainedRun alone = run(clipped + "--batch-size 32");
  const TrainedRun sharded = run(clipped + "--batch-size 16 --nproc-per-node 2 --shard-optimizer");
  const TrainedRun pipelines =
      run(clipped + "--parallel ddp+pp --batch-size 16 --nproc-per-node 4 --shard-optimizer");
  expect_near(sharded.losses(), alone.losses(), 6);
  expect_near(pipelines.losses(), alone.losses(), 6);
}

TEST_F(TrainWays, AModelInStagesHasTheHashOfTheWholeModel) {
  const TrainedRun alone = run("--batch-size 32");
  const TrainedRun staged = run("--batch-size 32 --parallel mp");
  const TrainedRun ranks = run("--batch-size 32 --parallel mp --nproc-per-node 2");
  EXPECT_EQ(staged.summary["parameters_hash"], ranks.summary["parameters_hash"]);
  EXPECT_EQ(alone.summary["parameters_hash"], ranks.summary["parameters_hash"]);
}

TEST_F(TrainWays, ImpossibleCombinationsAreRefusedWithCodeTwo) {
  const TemporaryFolder folder;
  const std::string common = data_.flag() + " --output " + folder.file("run") + " --parallel ";
  for (const std::string flags : {"dp --nproc-per-node 2", "ddp+pp --nproc-per-node 3",
           "pp --stages 99 --places 99", "pp --chunks 0", "mp --schedule gpipe"}) {
    EXPECT_EQ(train(common + flags).code(), 2) << flags;
  }
  EXPECT_THAT(train(common + "pp --schedule 1f2b").with_code(2).err, HasSubstr("1f1b"));
}

// Two ranks with half the batch each train as one rank with the whole: same losses, same images.

TEST(TrainParity, FiftyStepsOfFashionMnist) {
  const std::string common = "--model mnist-small --max-steps 50 --backend auto ";
  const auto alone = trained_run(common + "--batch-size 256").losses();
  const auto two = trained_run(common + "--batch-size 128 --nproc-per-node 2").losses();
  expect_near(alone, two, 50);
  EXPECT_LT(alone.back(), 0.7 * alone.front()) << "a curve that does not fall proves nothing";
}

TEST(TrainParity, TheLastPartialBatchToo) {
  const IdxFiles data(500, 67);
  const std::string common = data.flag() + " --epochs 2 --opt sgd ";
  const TrainedRun alone = trained_run(common + "--batch-size 64");
  const TrainedRun two = trained_run(common + "--batch-size 32 --nproc-per-node 2");
  expect_near(alone.losses(), two.losses(), 16);
  expect_near(alone.values("val", "loss"), two.values("val", "loss"), 2);
}

TEST(TrainParity, ALinearScaleMultipliesTheRateByTheRanks) {
  const IdxFiles data(256, 64);
  const std::string common = data.flag() + " --max-steps 10 --opt sgd ";
  const TrainedRun alone = trained_run(common + "--batch-size 64 --lr 0.02");
  const TrainedRun two =
      trained_run(common + "--batch-size 32 --lr 0.01 --lr-scale linear --nproc-per-node 2");
  expect_near(alone.losses(), two.losses(), 10);
}

TEST(TrainParity, SerialAndDdpOfOneRankAreTheSame) {
  const IdxFiles data(256, 64);
  const std::string common = data.flag() + " --epochs 2 --parallel ";
  const auto serial = trained_run(common + "serial").losses();
  EXPECT_EQ(serial.size(), 4U);
  EXPECT_EQ(serial, trained_run(common + "ddp").losses()) << "bit for bit";
}

}  // namespace
}  // namespace lockstep::testing
