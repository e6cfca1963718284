#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "tests/bench/statistics/coverage.h"

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

TEST(EstimateRatio, IsTheRatioOfMedians) {
  const Estimate estimate =
      estimate_ratio(std::vector{2.0, 40.0, 6.0}, std::vector{1.0, 10.0, 3.0});
  EXPECT_DOUBLE_EQ(estimate.median, 2.0);
  EXPECT_DOUBLE_EQ(estimate.low, 2.0);
  EXPECT_DOUBLE_EQ(estimate.high, 4.0);
  EXPECT_DOUBLE_EQ(estimate.confidence, 0.75);
  EXPECT_EQ(estimate.count, 3);
}

TEST(EstimateRatio, HoldsTheRatioOfMediansAlsoOutsideOfThePairs) {
  // Eight pairs have the ratio 1; the ninth moves the medians to 4 and 5.
  const std::vector<double> up{1, 2, 3, 4, 5, 6, 7, 8, 0.5};
  const std::vector<double> below{1, 2, 3, 4, 5, 6, 7, 8, 100};
  const Estimate estimate = estimate_ratio(up, below);
  EXPECT_DOUBLE_EQ(estimate.median, 0.8);
  EXPECT_DOUBLE_EQ(estimate.low, 0.8);
  EXPECT_DOUBLE_EQ(estimate.high, 1);
  EXPECT_DOUBLE_EQ(estimate_ratio(below, up).high, 1.25);
}

TEST(EstimateRatio, RoundsThatAreSlowForBothDoNotWidenIt) {
  std::vector<double> up;
  std::vector<double> below;
  for (const double slow : {1.0, 3.0, 1.1, 9.0, 2.0, 1.0, 1.2, 5.0}) {
    up.push_back(2 * slow);
    below.push_back(slow);
  }
  const Estimate estimate = estimate_ratio(up, below);
  EXPECT_DOUBLE_EQ(estimate.low, 2);
  EXPECT_DOUBLE_EQ(estimate.high, 2);
}

TEST(EstimateRatio, CoversAtLeastAsOftenAsItSays) {
  constexpr int kDraws = 20000;
  std::mt19937_64 engine(1);
  std::lognormal_distribution<double> noise(0, 0.1);
  std::exponential_distribution<double> round_noise(1);
  for (const int count : {3, 6, 9}) {
    std::vector<double> up(static_cast<std::size_t>(count)), below(up);
    double promised = 0;
    const double observed = testing::observed_coverage(kDraws, 1.5, [&] {
      for (std::size_t i = 0; i < up.size(); ++i) {
        const double slow = 1 + round_noise(engine);
        up[i] = 1.5 * slow * noise(engine);
        below[i] = slow * noise(engine);
      }
      const Estimate estimate = estimate_ratio(up, below);
      promised = estimate.confidence;
      return estimate;
    });
    EXPECT_GE(observed, promised - testing::four_deviations(promised, kDraws)) << count;
  }
}

TEST(EstimateRatio, RefusesWhatHasNone) {
  EXPECT_THROW(estimate_ratio(std::vector{1.0}, std::vector{1.0, 2.0}), InvalidArgument);
  EXPECT_THROW(estimate_ratio({}, {}), InvalidArgument);
  EXPECT_THROW(estimate_ratio(std::vector{1.0}, std::vector{0.0}), InvalidArgument);
  EXPECT_THROW(estimate_ratio(std::vector{1.0, 1.0}, std::vector{1.0, -1.0}), InvalidArgument);
  EXPECT_THROW(estimate_ratio(std::vector{std::nan("")}, std::vector{1.0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::bench
