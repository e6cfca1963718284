#include "lockstep/record/eval_metric.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(EvalMetric, TheFirstNumberIsTheBestSoFar) {
  EXPECT_TRUE(is_better(5, std::nullopt, EvalMetric::kLoss));
  EXPECT_TRUE(is_better(0, std::nullopt, EvalMetric::kTop1));
  EXPECT_FALSE(is_better(std::nan(""), std::nullopt, EvalMetric::kLoss));
}

TEST(EvalMetric, LossesFallAndAccuraciesRise) {
  const BestEpoch best{.epoch = 2, .value = 0.5};
  EXPECT_TRUE(is_better(0.4, best, EvalMetric::kLoss));
  EXPECT_FALSE(is_better(0.6, best, EvalMetric::kLoss));
  EXPECT_TRUE(is_better(0.6, best, EvalMetric::kTop1));
  EXPECT_FALSE(is_better(0.4, best, EvalMetric::kTop5));
}

TEST(EvalMetric, OfEqualOnesTheFirstStaysAndNaNIsNeverBetter) {
  const BestEpoch best{.epoch = 2, .value = 0.5};
  for (const auto metric : {EvalMetric::kLoss, EvalMetric::kTop1, EvalMetric::kTop5}) {
    EXPECT_FALSE(is_better(0.5, best, metric)) << name_of(metric);
    EXPECT_FALSE(is_better(std::nan(""), best, metric)) << name_of(metric);
  }
}

}  // namespace
}  // namespace lockstep
