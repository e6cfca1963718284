#include "lockstep/train/options/options.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

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
  options.model = "../nets/net.pt2";
  EXPECT_EQ(default_output(options, 1767225600), "runs/20260101T000000Z-net-ddp");
  options.model = "./resnet18";
  EXPECT_EQ(default_output(options, 1767225600), "runs/20260101T000000Z-resnet18-ddp");
}

TEST(Options, ThePrecisionSaysWhoChoseIt) {
  TrainOptions options;
  EXPECT_EQ(precision_text(options), "32");
  options.auto_precision = true;
  options.precision = Precision::kBf16Mixed;
  EXPECT_EQ(precision_text(options), "bf16-mixed (auto)");
}

constexpr PrecisionRequest kAuto{.is_auto = true, .is_given = true, .precision = Precision::k32};
constexpr PrecisionRequest kNothing{};

constexpr Computing kFast{.bf16_speed = 2}, kSlow{.bf16_speed = 1.9}, kEmulated{};

TEST(Precision, AutoTakesBf16WhereItsProductsTakeHalfTheTime) {
  EXPECT_EQ(choose_precision(kAuto, kFast, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, kSlow, {}).precision, Precision::k32);
  for (const Computing& on : {kFast, kSlow}) {
    EXPECT_EQ(choose_precision(kAuto, on, {}).hint, "");
    EXPECT_EQ(choose_precision(kAuto, on, {}).warning, "");
  }
}

TEST(Precision, AutoKeepsThatOfTheSnapshot) {
  EXPECT_EQ(choose_precision(kAuto, kFast, Precision::k32).precision, Precision::k32);
  const auto slow = choose_precision(kAuto, kSlow, Precision::kBf16Mixed);
  EXPECT_EQ(slow.precision, Precision::kBf16Mixed);
  EXPECT_THAT(slow.warning, HasSubstr("only 1.9 times as fast"));
}

TEST(Precision, WhatIsGivenIsTaken) {
  for (const Precision given : {Precision::k32, Precision::kBf16Mixed, Precision::k16Mixed}) {
    const PrecisionRequest asked{.is_given = true, .precision = given};
    EXPECT_EQ(choose_precision(asked, kFast, {}).precision, given);
    EXPECT_EQ(choose_precision(asked, kFast, {}).hint, "");
    EXPECT_EQ(choose_precision(asked, kSlow, Precision::k32).precision, given);
  }
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(bf16, kFast, {}).warning, "");
  EXPECT_THAT(choose_precision(bf16, kSlow, {}).warning, HasSubstr("only 1.9 times as fast"));
  EXPECT_EQ(choose_precision(bf16, kEmulated, {}).warning,
      "--precision bf16-mixed: a processor of this run has no instructions to multiply in "
      "bfloat16: --precision 32 is usually faster");
}

TEST(Precision, SaysWhereBf16WouldBeQuicker) {
  EXPECT_EQ(choose_precision(kNothing, kFast, {}).precision, Precision::k32);
  EXPECT_THAT(choose_precision(kNothing, kFast, {}).hint, HasSubstr("--precision bf16-mixed"));
  EXPECT_EQ(choose_precision(kNothing, kSlow, {}).hint, "");
  EXPECT_EQ(choose_precision(kNothing, kFast, Precision::k32).hint, "") << "a resume cannot change";
}

TEST(Precision, Float16OnACpuIsWarnedOfButNotOnADevice) {
  const PrecisionRequest half{.is_given = true, .precision = Precision::k16Mixed};
  const Computing cpu = kFast, device{.on_accelerators = true};
  EXPECT_THAT(choose_precision(half, cpu, {}).warning, HasSubstr("16-mixed is for GPUs"));
  EXPECT_EQ(choose_precision(half, device, {}).warning, "");
}

TEST(Precision, SpeaksOfDevicesWhereTheyCompute) {
  const Computing fast{.bf16_speed = 1.3, .on_accelerators = true},
      slow{.bf16_speed = 1.1, .on_accelerators = true};
  const PrecisionRequest bf16{.is_given = true, .precision = Precision::kBf16Mixed};
  EXPECT_EQ(choose_precision(kAuto, fast, {}).precision, Precision::kBf16Mixed);
  EXPECT_EQ(choose_precision(kAuto, slow, {}).precision, Precision::k32);
  EXPECT_THAT(choose_precision(kNothing, fast, {}).hint,
      HasSubstr("this device multiplies 1.3 times as fast"));
  EXPECT_THAT(choose_precision(bf16, slow, {}).warning, HasSubstr("a device of this run"));
  EXPECT_EQ(choose_precision(bf16, fast, {}).warning, "");
}

TEST(EvalMetric, TheFirstNumberIsTheBestSoFar) {
  EXPECT_TRUE(is_better(5, std::nullopt, is_larger_better("loss")));
  EXPECT_TRUE(is_better(0, std::nullopt, is_larger_better("top1")));
  EXPECT_FALSE(is_better(std::nan(""), std::nullopt, is_larger_better("loss")));
  EXPECT_FALSE(is_better(HUGE_VAL, std::nullopt, is_larger_better("loss")))
      << "state.json cannot hold it";
}

TEST(EvalMetric, LossesFallAndAccuraciesRise) {
  const BestEpoch best{.epoch = 2, .value = 0.5};
  EXPECT_TRUE(is_better(0.4, best, is_larger_better("loss")));
  EXPECT_FALSE(is_better(0.6, best, is_larger_better("loss")));
  EXPECT_TRUE(is_better(0.6, best, is_larger_better("top1")));
  EXPECT_FALSE(is_better(0.4, best, is_larger_better("top5")));
}

TEST(EvalMetric, OfAProgramsOwnNumberItSaysWhatIsBetter) {
  EXPECT_TRUE(is_larger_better("max:apart"));
  EXPECT_FALSE(is_larger_better("min:apart"));
  const Scores scores{.loss = 3, .top1 = 0.5, .more = {{"apart", 2}}};
  EXPECT_EQ(metric_of(scores, "min:apart"), 2);
  EXPECT_EQ(metric_of(scores, "top1"), 0.5);
  EXPECT_EQ(metric_of(scores, "max:top1"), std::nullopt);
  for (const char* metric : {"max:", "mix:apart", "apart"}) EXPECT_FALSE(is_own_metric(metric));
}

TEST(EvalMetric, OfEqualOnesTheFirstStaysAndNaNIsNeverBetter) {
  const BestEpoch best{.epoch = 2, .value = 0.5};
  for (const char* metric : {"loss", "top1", "top5"}) {
    EXPECT_FALSE(is_better(0.5, best, is_larger_better(metric))) << metric;
    EXPECT_FALSE(is_better(std::nan(""), best, is_larger_better(metric))) << metric;
  }
}

}  // namespace
}  // namespace lockstep
