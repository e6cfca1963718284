#include "lockstep/train/options/optimizer_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OptimizerSettings, LearningRateFollowsTheGlobalBatchAsAsked) {
  OptimizerSettings settings;
  settings.lr = 0.1;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.1);
  settings.lr_scale = LrScale::kLinear;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.4);
  settings.lr_scale = LrScale::kSqrt;
  EXPECT_DOUBLE_EQ(scaled_lr(settings, 4), 0.2);
}

// VGG19 with AdamW: 1.00, 1.41, 2.00, 2.83 e-4 on 1, 2, 4, 8 devices.
TEST(OptimizerSettings, TheRootRuleHasTheValuesOfTheStudy) {
  OptimizerSettings settings = default_settings(OptimizerKind::kAdamW);
  settings.lr = 1e-4;
  settings.lr_scale = LrScale::kSqrt;
  for (const auto& [devices, lr] :
      {std::pair{1, 1.00e-4}, {2, 1.41e-4}, {4, 2.00e-4}, {8, 2.83e-4}})
    EXPECT_NEAR(scaled_lr(settings, devices), lr, 0.005e-4);
}

using Kind = LrScheduleKind;

std::string lr_refusal(const LrSettings& settings, const TrainLimits& limits = {.epochs = 10}) {
  TrainOptions options;
  options.optimizer.lr = 0.1;
  options.optimizer.schedule = settings;
  options.limits = limits;
  return testing::message_of<InvalidArgument>([&] { check_options(options, 1); });
}

std::vector<double> epoch_rates(const LrSettings& settings, std::int64_t epochs) {
  check_lr_settings(settings, 0.1, {.epochs = epochs});
  constexpr std::int64_t kSteps = 7;
  const LrSchedule schedule = make_lr_schedule(settings, 0.1, {.epochs = epochs}, kSteps);
  std::vector<double> rates;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    rates.push_back(lr_at(schedule, epoch * kSteps));
    EXPECT_EQ(lr_at(schedule, epoch * kSteps + kSteps - 1), rates.back()) << epoch;
  }
  return rates;
}

TEST(LrSettings, RatesChangeByEpochs) {
  EXPECT_THAT(epoch_rates({.kind = Kind::kStep, .decay_epochs = 2}, 5),
      ElementsAre(0.1, 0.1, 0.1 * 0.1, 0.1 * 0.1, 0.1 * (0.1 * 0.1)));
  EXPECT_DOUBLE_EQ(epoch_rates({.kind = Kind::kExponential}, 3)[1], 0.09);
  EXPECT_DOUBLE_EQ(epoch_rates({.kind = Kind::kCosine}, 4)[2], 0.05);
  EXPECT_DOUBLE_EQ(epoch_rates({.kind = Kind::kPolynomial}, 4)[3], 0.025);
  EXPECT_DOUBLE_EQ(
      epoch_rates({.kind = Kind::kMultistep, .decay_milestones = {1, 3}, .decay_rate = 0.5}, 4)[3],
      0.025);
}

TEST(LrSettings, TheWarmupComesOutOfTheEpochs) {
  const auto rates = epoch_rates(
      {.kind = Kind::kCosine, .warmup_epochs = 2, .warmup_lr = 0.025, .min_lr = 0.01}, 6);
  EXPECT_DOUBLE_EQ(rates[0], 0.025);
  EXPECT_DOUBLE_EQ(rates[1], 0.0625);
  EXPECT_DOUBLE_EQ(rates[2], 0.1);
  EXPECT_DOUBLE_EQ(rates[4], 0.055) << "half of the four epochs that are left";
}

TEST(LrSettings, AWarmupThatLeavesNothingIsRefused) {
  const LrSettings settings{.kind = Kind::kCosine, .warmup_epochs = 3};
  EXPECT_THROW(make_lr_schedule(settings, 0.1, {.epochs = 3}, 7), InvalidArgument);
  EXPECT_EQ(make_lr_schedule(settings, 0.1, {.epochs = 4}, 7).length, 1);
}

TEST(LrSettings, OnUpdatesRatesChangeByStepsAndTheTimesStayEpochs) {
  LrSettings settings{.kind = Kind::kMultistep, .on_updates = true, .warmup_epochs = 1};
  settings.decay_milestones = {2, 3};
  const LrSchedule schedule = make_lr_schedule(settings, 0.1, {.epochs = 5}, 7);
  EXPECT_EQ(schedule.steps_a_tick, 1);
  EXPECT_EQ(schedule.warmup, 7);
  EXPECT_THAT(schedule.milestones, ElementsAre(14, 21));
  settings = {.kind = Kind::kStep, .on_updates = true, .decay_epochs = 3};
  EXPECT_EQ(make_lr_schedule(settings, 0.1, {.epochs = 5}, 7).interval, 21);
}

TEST(LrSettings, AWarmupInStepsTakesTheScheduleWithIt) {
  const LrSettings settings{.kind = Kind::kCosine, .warmup_steps = 5};
  const LrSchedule schedule = make_lr_schedule(settings, 0.1, {.epochs = 3}, 7);
  EXPECT_EQ(schedule.steps_a_tick, 1);
  EXPECT_EQ(schedule.warmup, 5);
  EXPECT_EQ(schedule.length, 16);
}

TEST(LrSettings, StepsAreTheLengthWhereThereAreNoEpochs) {
  const LrSchedule steps = make_lr_schedule({.kind = Kind::kCosine}, 0.1, {.steps = 30}, 7);
  EXPECT_EQ(steps.steps_a_tick, 1);
  EXPECT_EQ(steps.length, 30);
  const LrSchedule both =
      make_lr_schedule({.kind = Kind::kCosine}, 0.1, {.epochs = 9, .steps = 3}, 7);
  EXPECT_EQ(both.steps_a_tick, 7);
  EXPECT_EQ(both.length, 9) << "a run that is cut short has the rates of the whole one";
}

TEST(LrSettings, OneCycleAlwaysGoesBySteps) {
  const LrSchedule schedule = make_lr_schedule({.kind = Kind::kOneCycle}, 0.1, {.epochs = 3}, 7);
  EXPECT_EQ(schedule.steps_a_tick, 1);
  EXPECT_EQ(schedule.length, 21);
  EXPECT_EQ(schedule.pct_start, 0.3);
}

TEST(LrSettings, AWarmupStartsAtMostAtTheRateItself) {
  EXPECT_EQ(make_lr_schedule({.warmup_epochs = 1}, 0.1, {.epochs = 3}, 7).warmup_lr, 1e-5);
  EXPECT_EQ(make_lr_schedule({.warmup_epochs = 1}, 1e-6, {.epochs = 3}, 7).warmup_lr, 1e-6);
}

TEST(LrSettings, EpochsBeyondAllCountingAreNeverReached) {
  const LrSettings settings{.kind = Kind::kStep, .on_updates = true, .decay_epochs = INT64_MAX};
  EXPECT_EQ(make_lr_schedule(settings, 0.1, {.epochs = 3}, 7).interval, INT64_MAX);
}

TEST(LrSettings, APlateauHasItsRuleFromTheFlags) {
  const PlateauRule plain = plateau_rule({.kind = Kind::kPlateau}, false);
  EXPECT_EQ(plain.factor, 0.1);
  EXPECT_EQ(plain.patience, 10);
  EXPECT_FALSE(plain.larger_is_better);
  const PlateauRule own = plateau_rule(
      {.min_lr = 0.01, .decay_rate = 0.5, .patience_epochs = 2, .cooldown_epochs = 3}, true);
  EXPECT_EQ(own.factor, 0.5);
  EXPECT_EQ(own.patience, 2);
  EXPECT_EQ(own.cooldown, 3);
  EXPECT_EQ(own.min_lr, 0.01);
  EXPECT_TRUE(own.larger_is_better);
}

TEST(LrSettings, FlagsOfAnotherScheduleAreRefused) {
  EXPECT_EQ(lr_refusal({.kind = Kind::kCosine, .decay_epochs = 2}),
      "train: --decay-epochs is for --sched step; it is cosine");
  EXPECT_EQ(lr_refusal({.decay_rate = 0.5}),
      "train: --decay-rate is for --sched step, multistep, exponential, plateau; it is constant");
  EXPECT_THAT(lr_refusal({.decay_milestones = {1}}), HasSubstr("--decay-milestones is for"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kOneCycle, .min_lr = 0}), HasSubstr("--min-lr is for"));
  EXPECT_THAT(lr_refusal({.power = 2}), HasSubstr("--poly-power is for --sched poly"));
  EXPECT_THAT(lr_refusal({.patience_epochs = 2}), HasSubstr("--patience-epochs is for"));
  EXPECT_THAT(lr_refusal({.cooldown_epochs = 2}), HasSubstr("--cooldown-epochs is for"));
  EXPECT_THAT(lr_refusal({.pct_start = 0.5}), HasSubstr("--pct-start is for --sched onecycle"));
  EXPECT_THAT(lr_refusal({.div_factor = 2}), HasSubstr("--div-factor is for"));
  EXPECT_THAT(lr_refusal({.final_div_factor = 2}), HasSubstr("--final-div-factor is for"));
}

TEST(LrSettings, ImpossibleNumbersNameTheirFlag) {
  EXPECT_EQ(lr_refusal({.warmup_epochs = 1, .warmup_lr = 0.2}),
      "train: --warmup-lr must be at most --lr, 0.1: 0.2");
  EXPECT_THAT(lr_refusal({.kind = Kind::kCosine, .min_lr = 0.2}),
      HasSubstr("--min-lr must be at most --lr, 0.1"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kExponential, .decay_rate = 0}),
      HasSubstr("--decay-rate must be a number above 0"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kExponential, .decay_rate = 1.5}),
      HasSubstr("--decay-rate must be a number above 0 and of at most 1"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kStep, .decay_epochs = 0}), HasSubstr("--decay-epochs"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kPolynomial, .power = 0}), HasSubstr("--poly-power"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kOneCycle, .pct_start = 1.1}), HasSubstr("--pct-start"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kOneCycle, .div_factor = 0}), HasSubstr("--div-factor"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kOneCycle, .final_div_factor = -1}),
      HasSubstr("--final-div-factor"));
  EXPECT_EQ(lr_refusal({.kind = Kind::kMultistep, .decay_milestones = {3, 3}}),
      "train: --decay-milestones must be above 0 and ascend: 3 comes after 3");
  EXPECT_THAT(lr_refusal({.kind = Kind::kMultistep, .decay_milestones = {0}}),
      HasSubstr("must be above 0"));
}

TEST(LrSettings, WhatIsMissingIsSaid) {
  EXPECT_THAT(lr_refusal({.kind = Kind::kStep}), HasSubstr("--sched step needs --decay-epochs"));
  EXPECT_THAT(lr_refusal({.kind = Kind::kMultistep}), HasSubstr("needs --decay-milestones"));
  EXPECT_THAT(lr_refusal({.warmup_lr = 0}), HasSubstr("--warmup-lr needs --warmup-epochs"));
  EXPECT_THAT(
      lr_refusal({.warmup_epochs = 1, .warmup_steps = 1}), HasSubstr("mean the same; give one"));
  EXPECT_THAT(
      lr_refusal({.kind = Kind::kOneCycle, .warmup_epochs = 1}), HasSubstr("warms up by itself"));
  EXPECT_EQ(lr_refusal({.kind = Kind::kCosine}, {.seconds = 60}),
      "train: --sched cosine must know when it ends; give --epochs or --max-steps");
  EXPECT_NO_THROW(check_lr_settings({.kind = Kind::kCosine}, 0.1, {.steps = 60}));
}

}  // namespace
}  // namespace lockstep
