// The expected rates are Python PyTorch's, made by tests/conformance/lr_schedules.py.

#include "lockstep/train/optim/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/expected_numbers.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pointwise;

std::vector<double> expected(const std::string& name) {
  return testing::expected_numbers("lr_schedules.txt", name);
}

std::vector<double> rates(const LrSchedule& schedule, std::size_t steps) {
  std::vector<double> result;
  for (std::size_t step = 0; step < steps; ++step)
    result.push_back(lr_at(schedule, static_cast<std::int64_t>(step)));
  return result;
}

// Closed forms against PyTorch's products of factors: they differ by rounding alone.
void expect_rates(const LrSchedule& schedule, const std::vector<double>& expected) {
  EXPECT_THAT(rates(schedule, expected.size()), Pointwise(DoubleNear(1e-15), expected));
}

struct OfPyTorch {
  const char* name;
  LrSchedule schedule;
};

// O5 to O8 are the short rows. A schedule begins when the warm-up ends.
TEST(LrSchedule, RatesAreThoseOfPyTorch) {
  using Kind = LrScheduleKind;
  const OfPyTorch rows[] = {
      {"StepShort", {.kind = Kind::kStep, .lr = 0.1, .interval = 2, .rate = 0.5}},
      {"MultistepShort", {.kind = Kind::kMultistep, .lr = 0.1, .milestones = {2, 5}}},
      {"ExponentialShort", {.kind = Kind::kExponential, .lr = 0.1, .rate = 0.9}},
      {"LinearShort", {.lr = 0.1, .warmup = 3, .warmup_lr = 0.025}},
      {"CosineShort", {.kind = Kind::kCosine, .lr = 0.1, .length = 4}},
      {"WarmupCosineShort",
          {.kind = Kind::kCosine, .lr = 0.1, .warmup = 2, .warmup_lr = 0.025, .length = 4}},
      {"OneCycleShort", {.kind = Kind::kOneCycle, .lr = 1, .length = 8}},
      {"StepLong", {.kind = Kind::kStep, .lr = 0.1, .interval = 7, .rate = 0.3}},
      {"MultistepLong",
          {.kind = Kind::kMultistep, .lr = 0.1, .milestones = {3, 4, 20, 41}, .rate = 0.2}},
      {"ExponentialLong", {.kind = Kind::kExponential, .lr = 0.1, .rate = 0.93}},
      {"CosineLong", {.kind = Kind::kCosine, .lr = 0.1, .min_lr = 0.004, .length = 50}},
      {"PolynomialLong", {.kind = Kind::kPolynomial, .lr = 0.1, .length = 40, .power = 1.7}},
      {"OneCycleLong", {.kind = Kind::kOneCycle,
                           .lr = 0.6,
                           .length = 57,
                           .pct_start = 0.4,
                           .div_factor = 10,
                           .final_div_factor = 200}},
      {"WarmupStepLong", {.kind = Kind::kStep,
                             .lr = 0.1,
                             .warmup = 11,
                             .warmup_lr = 0.001,
                             .interval = 7,
                             .rate = 0.3}},
      {"WarmupPolynomialLong", {.kind = Kind::kPolynomial,
                                   .lr = 0.1,
                                   .warmup = 5,
                                   .warmup_lr = 0.01,
                                   .length = 40,
                                   .power = 0.5}}};
  for (const auto& [name, schedule] : rows) {
    SCOPED_TRACE(name);
    expect_rates(schedule, expected(name));
  }
}

TEST(LrSchedule, StaysAtItsLastRateAfterItsEnd) {
  const LrSchedule cosine{.kind = LrScheduleKind::kCosine, .lr = 0.1, .min_lr = 0.01, .length = 4};
  EXPECT_DOUBLE_EQ(lr_at(cosine, 5), 0.01) << "PyTorch's would rise again";
  const LrSchedule polynomial{
      .kind = LrScheduleKind::kPolynomial, .lr = 0.1, .min_lr = 0.02, .length = 4};
  EXPECT_DOUBLE_EQ(lr_at(polynomial, 2), 0.06);
  EXPECT_DOUBLE_EQ(lr_at(polynomial, 1000000), 0.02);
  const LrSchedule cycle{.kind = LrScheduleKind::kOneCycle, .lr = 1, .length = 8};
  EXPECT_DOUBLE_EQ(lr_at(cycle, 9), lr_at(cycle, 7));
}

TEST(LrSchedule, NothingButTheWarmupGoesBelowTheLeastRate) {
  const LrSchedule exponential{.kind = LrScheduleKind::kExponential,
      .lr = 0.1,
      .min_lr = 0.03,
      .warmup = 1,
      .warmup_lr = 0.001,
      .rate = 0.5};
  expect_rates(exponential, {0.001, 0.1, 0.05, 0.03, 0.03});
}

TEST(LrSchedule, ATickMayBeAnEpochOfSteps) {
  const LrSchedule step{
      .kind = LrScheduleKind::kStep, .lr = 0.1, .steps_a_tick = 3, .interval = 2, .rate = 0.5};
  EXPECT_THAT(rates(step, 6), Each(0.1));
  EXPECT_DOUBLE_EQ(lr_at(step, 6), 0.05);
  const LrSchedule warmup{.lr = 0.1, .steps_a_tick = 2, .warmup = 2};
  EXPECT_THAT(rates(warmup, 5), ElementsAre(0, 0, 0.05, 0.05, 0.1));
}

TEST(LrSchedule, HasNoStepBelowTheFirst) {
  EXPECT_THROW(lr_at({.kind = LrScheduleKind::kStep, .interval = 1}, -1), InvalidArgument);
}

TEST(LrSchedule, CyclesOfOneOrTwoStepsAreNumbersToo) {
  const auto cycle = [](std::int64_t length, double pct_start) {
    return LrSchedule{
        .kind = LrScheduleKind::kOneCycle, .lr = 1, .length = length, .pct_start = pct_start};
  };
  EXPECT_DOUBLE_EQ(lr_at(cycle(1, 0.3), 0), 1 / 25e4);
  EXPECT_DOUBLE_EQ(lr_at(cycle(2, 0.5), 0), 1) << "the rise has one step: it begins at the top";
  EXPECT_DOUBLE_EQ(lr_at(cycle(2, 0.5), 1), 1 / 25e4);
  EXPECT_DOUBLE_EQ(lr_at(cycle(2, 1), 1), 1);
}

// Plateaus: the expected rates are those of ReduceLROnPlateau.

std::vector<double> rates_after(const std::vector<double>& values, const PlateauRule& rule) {
  PlateauState state{.lr = 0.1};
  std::vector<double> result;
  for (const double value : values) {
    state = after_evaluation(state, value, rule);
    result.push_back(state.lr);
  }
  return result;
}

void expect_plateau(
    const std::vector<double>& values, const PlateauRule& rule, const std::vector<double>& rows) {
  EXPECT_THAT(rates_after(values, rule), Pointwise(DoubleNear(1e-15), rows));
  EXPECT_LT(rows.back(), 0.1) << "a rate that never falls proves nothing";
}

TEST(LrPlateau, FallsWhenLossesStopFalling) {
  expect_plateau(
      expected("PlateauLosses"), {.factor = 0.5, .patience = 3}, expected("PlateauOfLosses"));
  expect_plateau(expected("PlateauLosses"),
      {.patience = 2, .cooldown = 4, .min_lr = 1e-4, .threshold = 0.02},
      expected("PlateauWithCooldown"));
}

TEST(LrPlateau, FallsWhenAccuraciesStopRising) {
  std::vector<double> accuracies;
  for (const double loss : expected("PlateauLosses")) accuracies.push_back(1 - loss);
  expect_plateau(accuracies, {.factor = 0.5, .patience = 1, .larger_is_better = true},
      expected("PlateauOfAccuracies"));
}

TEST(LrPlateau, ABetterValueMustDifferByTheThreshold) {
  const PlateauRule losses{.patience = 0};
  EXPECT_EQ(rates_after({1, 0.9998}, losses).back(), 0.1);
  EXPECT_LT(rates_after({1, 0.99995}, losses).back(), 0.1);
  const PlateauRule accuracies{.patience = 0, .larger_is_better = true};
  EXPECT_EQ(rates_after({1, 1.0002}, accuracies).back(), 0.1);
  EXPECT_LT(rates_after({1, 1.00005}, accuracies).back(), 0.1);
}

TEST(LrPlateau, DoesNotFallByNextToNothing) {
  expect_plateau(std::vector<double>(40, 1.0), {.patience = 0}, expected("PlateauToNothing"));
}

TEST(LrPlateau, WhatIsNotFiniteIsNoImprovement) {
  const PlateauRule rule{.patience = 1};
  PlateauState state{.lr = 0.1};
  state = after_evaluation(state, std::nan(""), rule);
  state = after_evaluation(state, std::numeric_limits<double>::infinity(), rule);
  EXPECT_EQ(state, (PlateauState{.lr = 0.1 * 0.1}));
}

TEST(LrPlateau, AStateThatWasKeptContinuesTheSequence) {
  const PlateauRule rule{.factor = 0.5, .patience = 3};
  const auto losses = expected("PlateauLosses"), rates = expected("PlateauOfLosses");
  PlateauState state{.lr = 0.1};
  for (std::size_t i = 0; i < 25; ++i) state = after_evaluation(state, losses[i], rule);
  PlateauState kept{
      .lr = state.lr, .best = state.best, .bad = state.bad, .cooldown_left = state.cooldown_left};
  for (std::size_t i = 25; i < losses.size(); ++i) {
    kept = after_evaluation(kept, losses[i], rule);
    EXPECT_NEAR(kept.lr, rates[i], 1e-15) << i;
  }
}

const LrSchedule kPlateauAfterWarmup{
    .kind = LrScheduleKind::kPlateau, .lr = 0.1, .steps_a_tick = 5, .warmup = 2, .warmup_lr = 0.02};
const PlateauRule kImpatient{.factor = 0.5, .patience = 0};

TEST(LrScheduler, FollowsTheScheduleWhateverTheEvaluations) {
  const LrSchedule cosine{.kind = LrScheduleKind::kCosine, .lr = 0.1, .length = 4};
  const LrScheduler scheduler(cosine, kImpatient);
  PlateauState plateau = scheduler.start();
  for (std::int64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(scheduler.lr(step, plateau), lr_at(cosine, step)) << step;
    plateau = scheduler.evaluated(plateau, step + 1, 1);
  }
}

TEST(LrScheduler, LowersAPlateausRateAfterTheWarmup) {
  const LrScheduler scheduler(kPlateauAfterWarmup, kImpatient);
  PlateauState plateau = scheduler.start();
  EXPECT_DOUBLE_EQ(scheduler.lr(0, plateau), 0.02);
  EXPECT_DOUBLE_EQ(scheduler.lr(5, plateau), 0.06);
  EXPECT_DOUBLE_EQ(scheduler.lr(10, plateau), 0.1);
  plateau = scheduler.evaluated(plateau, 5, 1);
  plateau = scheduler.evaluated(plateau, 10, 2);
  EXPECT_DOUBLE_EQ(scheduler.lr(10, plateau), 0.1) << "evaluations of the warm-up do not count";
  plateau = scheduler.evaluated(plateau, 15, 3);
  plateau = scheduler.evaluated(plateau, 20, 3);
  EXPECT_DOUBLE_EQ(scheduler.lr(20, plateau), 0.05);
  EXPECT_DOUBLE_EQ(scheduler.lr(5, plateau), 0.06) << "a step of the warm-up keeps its rate";
}

}  // namespace
}  // namespace lockstep
