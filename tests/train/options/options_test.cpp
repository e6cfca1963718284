#include "lockstep/train/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string options_refusal(const TrainOptions& options, int world_size = 1) {
  return testing::message_of<InvalidArgument>([&] { check_options(options, world_size); });
}

TEST(Options, DefaultsAreAccepted) { EXPECT_NO_THROW(check_options(TrainOptions{}, 1)); }

TEST(Options, SerialOnSeveralRanksIsRefusedWithAdvice) {
  EXPECT_EQ(options_refusal(TrainOptions{}, 2),
      "train: --parallel serial trains on one rank, but there are 2; use --parallel ddp");
}

TEST(Options, ImpossibleValuesNameTheirFlag) {
  TrainOptions options;
  options.batch_size = 0;
  EXPECT_EQ(options_refusal(options),
      "train: --batch-size must be a whole number from 1 to 100000000: 0");
  options = {};
  options.limits.epochs = 0;
  EXPECT_EQ(
      options_refusal(options), "train: --epochs must be a whole number from 1 to 1000000: 0");
  options = {};
  options.val_interval = -2;
  EXPECT_THAT(
      options_refusal(options), ::testing::HasSubstr("--val-interval must be a whole number"));
  options = {};
  options.ema = EmaSettings{.decay = 1};
  EXPECT_THAT(options_refusal(options), ::testing::HasSubstr("--model-ema-decay must be a number"));
  options = {};
  options.optimizer.lr = -1;
  EXPECT_THAT(options_refusal(options), ::testing::HasSubstr("--lr must be a number above 0"));
  options = {};
  options.optimizer.momentum = 0.9;
  EXPECT_EQ(options_refusal(options), "train: --momentum is for --opt sgd; adam has its own");
}

TEST(Options, DefaultFolderNamesTimeModelAndWay) {
  TrainOptions options;
  options.parallel = Parallel::kDdp;
  EXPECT_EQ(default_output(options, 1767225600), "runs/20260101T000000Z-mnist-small-ddp");
}

TEST(Options, ThePrecisionSaysWhoChoseIt) {
  TrainOptions options;
  EXPECT_EQ(precision_text(options), "32");
  options.auto_precision = true;
  options.precision = Precision::kBf16Mixed;
  EXPECT_EQ(precision_text(options), "bf16-mixed (auto)");
}

}  // namespace
}  // namespace lockstep
