#include "lockstep/train/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string refusal(const TrainOptions& options, int world_size = 1) {
  try {
    check_options(options, world_size);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Options, DefaultsAreAccepted) { EXPECT_EQ(refusal(TrainOptions{}), ""); }

TEST(Options, SerialOnSeveralRanksIsRefusedWithAdvice) {
  EXPECT_EQ(
      refusal(TrainOptions{}, 2),
      "train: --parallel serial trains on one rank, but there are 2; use --parallel ddp");
}

TEST(Options, ImpossibleValuesNameTheirFlag) {
  TrainOptions options;
  options.batch_size = 0;
  EXPECT_EQ(refusal(options), "train: --batch-size must be at least 1: 0");
  options = {};
  options.limits.epochs = 0;
  EXPECT_EQ(refusal(options), "train: --epochs must be at least 1: 0");
  options = {};
  options.optimizer.lr = -1;
  EXPECT_THAT(refusal(options), testing::HasSubstr("--lr must be a number above 0"));
  options = {};
  options.optimizer.momentum = 0.9;
  EXPECT_EQ(refusal(options), "train: --momentum is for --opt sgd; adam has its own");
}

TEST(Options, DefaultFolderNamesTimeModelAndWay) {
  TrainOptions options;
  options.parallel = Parallel::kDdp;
  EXPECT_EQ(default_output(options, 1767225600), "runs/20260101T000000Z-mnist-small-ddp");
}

}  // namespace
}  // namespace lockstep
