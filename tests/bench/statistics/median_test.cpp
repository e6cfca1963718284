#include "bench/statistics/median.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

#include "tests/bench/statistics/coverage.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using testing::exact_coverage;

std::vector<double> one_to(int count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  std::shuffle(values.begin(), values.end(), std::mt19937_64(7));
  return values;
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_EQ(median(std::vector{5.0}), 5.0);
  constexpr double kLargest = std::numeric_limits<double>::max();
  EXPECT_EQ(median(std::vector{kLargest, kLargest}), kLargest) << "a sum of both is no double";
  EXPECT_EQ(median(std::vector{-kLargest, kLargest}), 0) << "nor is their difference";
}

TEST(Median, RefusesWhatHasNone) {
  EXPECT_THROW(median({}), InvalidArgument);
  EXPECT_THROW(median(std::vector{1.0, std::nan("")}), InvalidArgument);
  EXPECT_THROW(estimate_median({}), InvalidArgument);
  EXPECT_THROW(estimate_median(std::vector{1.0, HUGE_VAL}), InvalidArgument);
  EXPECT_THROW(estimate_median(std::vector{1.0}, 1.0), InvalidArgument);
  EXPECT_THROW(estimate_median(std::vector{1.0}, 0.0), InvalidArgument);
}

// Which of the ordered values bound the interval at 95 %: the tables of the sign test.
TEST(EstimateMedian, IsTheTablesInterval) {
  const std::vector<std::pair<int, int>> first_of{
      {6, 1}, {8, 1}, {9, 2}, {11, 2}, {12, 3}, {15, 4}, {20, 6}, {25, 8}, {30, 10}, {50, 18}};
  for (const auto& [count, first] : first_of) {
    const Estimate estimate = estimate_median(one_to(count));
    EXPECT_EQ(estimate.low, first) << count;
    EXPECT_EQ(estimate.high, count + 1 - first) << count;
    EXPECT_EQ(estimate.median, (count + 1) / 2.0);
    EXPECT_EQ(estimate.count, count);
  }
}

TEST(EstimateMedian, SaysHowSureFewValuesAre) {
  const std::vector<double> confidences{0, 0.5, 0.75, 0.875, 0.9375};
  for (int count = 1; count <= 5; ++count) {
    const Estimate estimate = estimate_median(one_to(count));
    EXPECT_EQ(estimate.low, 1);
    EXPECT_EQ(estimate.high, count);
    EXPECT_NEAR(estimate.confidence, confidences[static_cast<std::size_t>(count - 1)], 1e-12);
  }
}

TEST(EstimateMedian, IsTheNarrowestThatCoversEnough) {
  for (const double confidence : {0.5, 0.75, 0.9, 0.95, 0.99}) {
    for (int count = 1; count <= 60; ++count) {
      const Estimate estimate = estimate_median(one_to(count), confidence);
      const int left_out = static_cast<int>(estimate.low) - 1;
      EXPECT_EQ(estimate.high, count - left_out) << "symmetric";
      EXPECT_NEAR(estimate.confidence, exact_coverage(count, left_out), 1e-9) << count;
      EXPECT_TRUE(left_out == 0 || estimate.confidence >= confidence - 1e-9) << count;
      if (2 * (left_out + 1) >= count) continue;
      EXPECT_LT(exact_coverage(count, left_out + 1), confidence) << count << " can be narrower";
    }
  }
}

TEST(EstimateMedian, ManyValuesGiveTheNormalInterval) {
  constexpr int kCount = 100000;
  const Estimate estimate = estimate_median(one_to(kCount));
  EXPECT_NEAR(estimate.high - estimate.low, 1.96 * std::sqrt(kCount), 4);
  EXPECT_NEAR(estimate.confidence, 0.95, 0.005);
}

/// Compares how often the interval holds the truth with the exact number.
void check_coverage(double truth, const std::function<double(std::mt19937_64&)>& draw) {
  constexpr int kDraws = 20000;
  std::mt19937_64 engine(42);
  for (const int count : {2, 3, 5, 6, 9, 12, 20}) {
    std::vector<double> values(static_cast<std::size_t>(count));
    double promised = 0;
    const double observed = testing::observed_coverage(kDraws, truth, [&] {
      for (double& value : values) value = draw(engine);
      const Estimate estimate = estimate_median(values);
      promised = estimate.confidence;
      return estimate;
    });
    EXPECT_NEAR(observed, promised, testing::four_deviations(promised, kDraws)) << count;
  }
}

TEST(EstimateMedian, CoversAsOftenAsItSaysWhateverIsDrawn) {
  check_coverage(0.5, [](auto& engine) { return std::uniform_real_distribution()(engine); });
  check_coverage(
      std::log(2.0), [](auto& engine) { return std::exponential_distribution()(engine); });
  check_coverage(3.0, [](auto& engine) { return std::cauchy_distribution(3.0)(engine); });
}

}  // namespace
}  // namespace lockstep::bench
