// The expected rates are those of Python's ReduceLROnPlateau, made by
// tests/conformance/lr_schedules.py.

#include "lockstep/train/optim/lr_plateau.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/optim/lr_schedule_expected.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

std::vector<double> rates(const std::vector<double>& values, const PlateauRule& rule) {
  PlateauState state{.lr = 0.1};
  std::vector<double> result;
  for (const double value : values) {
    state = after_evaluation(state, value, rule);
    result.push_back(state.lr);
  }
  return result;
}

void expect_rates(
    const std::vector<double>& values, const PlateauRule& rule, const std::vector<double>& rows) {
  EXPECT_THAT(rates(values, rule), Pointwise(DoubleNear(1e-15), rows));
  EXPECT_LT(rows.back(), 0.1) << "a rate that never falls proves nothing";
}

TEST(LrPlateau, FallsWhenLossesStopFalling) {
  expect_rates(testing::kPlateauLosses, {.factor = 0.5, .patience = 3}, testing::kPlateauOfLosses);
  expect_rates(
      testing::kPlateauLosses, {.patience = 2, .cooldown = 4, .min_lr = 1e-4, .threshold = 0.02},
      testing::kPlateauWithCooldown);
}

TEST(LrPlateau, FallsWhenAccuraciesStopRising) {
  std::vector<double> accuracies;
  for (const double loss : testing::kPlateauLosses) accuracies.push_back(1 - loss);
  expect_rates(
      accuracies, {.factor = 0.5, .patience = 1, .larger_is_better = true},
      testing::kPlateauOfAccuracies);
}

TEST(LrPlateau, ABetterValueMustDifferByTheThreshold) {
  const PlateauRule losses{.patience = 0};
  EXPECT_EQ(rates({1, 0.9998}, losses).back(), 0.1);
  EXPECT_LT(rates({1, 0.99995}, losses).back(), 0.1);
  const PlateauRule accuracies{.patience = 0, .larger_is_better = true};
  EXPECT_EQ(rates({1, 1.0002}, accuracies).back(), 0.1);
  EXPECT_LT(rates({1, 1.00005}, accuracies).back(), 0.1);
}

TEST(LrPlateau, DoesNotFallByNextToNothing) {
  expect_rates(std::vector<double>(40, 1.0), {.patience = 0}, testing::kPlateauToNothing);
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
  const auto& losses = testing::kPlateauLosses;
  PlateauState state{.lr = 0.1};
  for (std::size_t i = 0; i < 25; ++i) state = after_evaluation(state, losses[i], rule);
  PlateauState kept{
      .lr = state.lr, .best = state.best, .bad = state.bad, .cooldown_left = state.cooldown_left};
  for (std::size_t i = 25; i < losses.size(); ++i) {
    kept = after_evaluation(kept, losses[i], rule);
    EXPECT_NEAR(kept.lr, testing::kPlateauOfLosses[i], 1e-15) << i;
  }
}

}  // namespace
}  // namespace lockstep
