// Two ranks with half the batch each train as one rank with the whole: same losses, same images.

#include <gtest/gtest.h>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

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
