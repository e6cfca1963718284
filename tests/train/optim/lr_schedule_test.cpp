// The expected rates are Python PyTorch's, made by tests/conformance/lr_schedules.py; ids O5 to O8
// are those of its short rows.

#include "lockstep/train/optim/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/optim/lr_schedule_expected.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pointwise;

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

TEST(LrSchedule, O5StepAndMultistep) {
  const LrSchedule step{.kind = LrScheduleKind::kStep, .lr = 0.1, .interval = 2, .rate = 0.5};
  expect_rates(step, testing::kStepShort);
  expect_rates(step, {0.1, 0.1, 0.05, 0.05, 0.025, 0.025});
  const LrSchedule several{.kind = LrScheduleKind::kMultistep, .lr = 0.1, .milestones = {2, 5}};
  expect_rates(several, testing::kMultistepShort);
  expect_rates(several, {0.1, 0.1, 0.01, 0.01, 0.01, 0.001});
}

TEST(LrSchedule, O6ExponentialAndWarmupAlone) {
  const LrSchedule exponential{.kind = LrScheduleKind::kExponential, .lr = 0.1, .rate = 0.9};
  expect_rates(exponential, testing::kExponentialShort);
  expect_rates(exponential, {0.1, 0.09, 0.081, 0.0729, 0.06561});
  const LrSchedule warmup{.lr = 0.1, .warmup = 3, .warmup_lr = 0.025};
  expect_rates(warmup, testing::kLinearShort);
  expect_rates(warmup, {0.025, 0.05, 0.075, 0.1, 0.1});
}

TEST(LrSchedule, O7CosineWithAndWithoutWarmup) {
  LrSchedule cosine{.kind = LrScheduleKind::kCosine, .lr = 0.1, .length = 4};
  expect_rates(cosine, testing::kCosineShort);
  cosine.warmup = 2;
  cosine.warmup_lr = 0.025;
  expect_rates(cosine, testing::kWarmupCosineShort);
  EXPECT_NEAR(lr_at(cosine, 3), 0.085355, 1e-6);
}

TEST(LrSchedule, O8OneCycle) {
  const LrSchedule cycle{.kind = LrScheduleKind::kOneCycle, .lr = 1, .length = 8};
  expect_rates(cycle, testing::kOneCycleShort);
  EXPECT_THAT(
      rates(cycle, 8), Pointwise(
                           DoubleNear(1e-6), {0.04, 0.819275, 0.971942, 0.811746, 0.555984,
                                              0.283061, 0.076642, 0.000004}));
}

TEST(LrSchedule, LongSequencesAreThoseOfPyTorch) {
  expect_rates(
      {.kind = LrScheduleKind::kStep, .lr = 0.1, .interval = 7, .rate = 0.3}, testing::kStepLong);
  expect_rates(
      {.kind = LrScheduleKind::kMultistep, .lr = 0.1, .milestones = {3, 4, 20, 41}, .rate = 0.2},
      testing::kMultistepLong);
  expect_rates(
      {.kind = LrScheduleKind::kExponential, .lr = 0.1, .rate = 0.93}, testing::kExponentialLong);
  expect_rates(
      {.kind = LrScheduleKind::kCosine, .lr = 0.1, .min_lr = 0.004, .length = 50},
      testing::kCosineLong);
  expect_rates(
      {.kind = LrScheduleKind::kPolynomial, .lr = 0.1, .length = 40, .power = 1.7},
      testing::kPolynomialLong);
  expect_rates(
      {.kind = LrScheduleKind::kOneCycle,
       .lr = 0.6,
       .length = 57,
       .pct_start = 0.4,
       .div_factor = 10,
       .final_div_factor = 200},
      testing::kOneCycleLong);
}

TEST(LrSchedule, AScheduleBeginsWhenTheWarmupEnds) {
  expect_rates(
      {.kind = LrScheduleKind::kStep,
       .lr = 0.1,
       .warmup = 11,
       .warmup_lr = 0.001,
       .interval = 7,
       .rate = 0.3},
      testing::kWarmupStepLong);
  expect_rates(
      {.kind = LrScheduleKind::kPolynomial,
       .lr = 0.1,
       .warmup = 5,
       .warmup_lr = 0.01,
       .length = 40,
       .power = 0.5},
      testing::kWarmupPolynomialLong);
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
  const LrSchedule exponential{
      .kind = LrScheduleKind::kExponential,
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

}  // namespace
}  // namespace lockstep
