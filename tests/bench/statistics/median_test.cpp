#include "bench/statistics/median.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Counts the ways to choose, by Pascal's triangle: exact up to 60.
std::uint64_t choose(int from, int count) {
  std::vector<std::uint64_t> row{1};
  for (int i = 1; i <= from; ++i) {
    row.push_back(1);
    for (int j = i - 1; j > 0; --j) {
      row[static_cast<std::size_t>(j)] += row[static_cast<std::size_t>(j - 1)];
    }
  }
  return row[static_cast<std::size_t>(count)];
}

// Returns how often an interval that leaves out this many values at each end covers the median.
double exact_coverage(int values, int left_out) {
  std::uint64_t missed = 0;
  for (int i = 0; i <= left_out; ++i) missed += 2 * choose(values, i);
  return 1 - static_cast<double>(missed) / std::ldexp(1.0, values);
}

// Counts in which part of so many draws the interval held the truth.
double observed_coverage(
    int draws, double truth, const std::function<Estimate()>& draw_and_estimate) {
  int covered = 0;
  for (int i = 0; i < draws; ++i) {
    const Estimate estimate = draw_and_estimate();
    if (estimate.low <= truth && truth <= estimate.high) ++covered;
  }
  return static_cast<double>(covered) / draws;
}

// Returns four standard deviations of the part of this many draws that hits with this probability.
double four_deviations(double probability, int draws) {
  return 4 * std::sqrt(probability * (1 - probability) / draws);
}

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
    const double observed = observed_coverage(kDraws, truth, [&] {
      for (double& value : values) value = draw(engine);
      const Estimate estimate = estimate_median(values);
      promised = estimate.confidence;
      return estimate;
    });
    EXPECT_NEAR(observed, promised, four_deviations(promised, kDraws)) << count;
  }
}

TEST(EstimateMedian, CoversAsOftenAsItSaysWhateverIsDrawn) {
  check_coverage(0.5, [](auto& engine) { return std::uniform_real_distribution()(engine); });
  check_coverage(
      std::log(2.0), [](auto& engine) { return std::exponential_distribution()(engine); });
  check_coverage(3.0, [](auto& engine) { return std::cauchy_distribution(3.0)(engine); });
}

TEST(Outliers, AreFarFromTheMiddleInMedianDeviations) {
  // Median 10, deviations 1 0 1 0 7: MAD 1, so z is 0.6745 times the distance.
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 17.0}),
      ElementsAre(false, false, false, false, true));
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 17.0}, 4.8), Each(false))
      << "0.6745 * 7 = 4.72";
  EXPECT_THAT(outliers(std::vector{9.0, 10.0, 11.0, 10.0, 3.0}, 4.7),
      ElementsAre(false, false, false, false, true))
      << "those below, too";
}

TEST(Outliers, AreFoundWhereMostValuesAreEqual) {
  EXPECT_THAT(outliers(std::vector{1.0, 1.0, 1.0, 1.0, 1.0, 2.0}),
      ElementsAre(false, false, false, false, false, true));
}

TEST(Outliers, FewOrEqualValuesHaveNone) {
  EXPECT_THAT(outliers({}), IsEmpty());
  EXPECT_THAT(outliers(std::vector{1.0, 1000.0}), Each(false));
  EXPECT_THAT(outliers(std::vector{2.0, 2.0, 2.0}), Each(false));
  EXPECT_THAT(outliers(std::vector{1.0, 1.0, 2.0}), Each(false)) << "three tell too little";
}

TEST(Outliers, MayBeAsFarAsDoublesGo) {
  EXPECT_THAT(outliers(std::vector{-1.7e308, -1.7e308, -1.6e308, -1.6e308, 1.7e308}),
      ElementsAre(false, false, false, false, true));
}

TEST(Outliers, RefuseWhatIsNotFinite) {
  EXPECT_THROW(outliers(std::vector{1.0, std::nan(""), 2.0}), InvalidArgument);
}

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
    const double observed = observed_coverage(kDraws, 1.5, [&] {
      for (std::size_t i = 0; i < up.size(); ++i) {
        const double slow = 1 + round_noise(engine);
        up[i] = 1.5 * slow * noise(engine);
        below[i] = slow * noise(engine);
      }
      const Estimate estimate = estimate_ratio(up, below);
      promised = estimate.confidence;
      return estimate;
    });
    EXPECT_GE(observed, promised - four_deviations(promised, kDraws)) << count;
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
