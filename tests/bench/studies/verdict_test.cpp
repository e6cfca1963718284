#include "bench/study/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "bench/statistics/median.h"

namespace lockstep::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Estimates a ratio that is about 2 in each of so many rounds.
Estimate twice(int rounds) {
  std::vector<double> numerators, denominators;
  for (int round = 0; round < rounds; ++round) {
    numerators.push_back(2 + 0.01 * round);
    denominators.push_back(1);
  }
  return estimate_ratio(numerators, denominators);
}

Verdict of(const std::vector<Estimate>& ratios) { return {.ratios = ratios}; }

TEST(Verdict, IsSignificantOnlyByTheWholeInterval) {
  EXPECT_TRUE(above_one(Estimate{1.5, 1.01, 1.6, 0.75, 3}));
  EXPECT_FALSE(above_one(Estimate{1.5, 1.0, 1.6, 0.75, 3}));
  EXPECT_FALSE(above_one(Estimate{1.5, 1.5, 1.5, 0, 1}));
  EXPECT_TRUE(below_one(Estimate{0.5, 0.4, 0.99, 0.75, 3}));
  EXPECT_FALSE(below_one(std::nullopt));
}

TEST(Verdict, IsSureFromFiveRoundsOn) {
  EXPECT_EQ(verdict_on(twice(1), "faster", "slower"), "only one round, not conclusive");
  EXPECT_EQ(verdict_on(twice(2), "faster", "slower"), "faster in every round");
  EXPECT_EQ(verdict_on(twice(4), "faster", "slower"), "faster in every round");
  EXPECT_EQ(verdict_on(twice(5), "faster", "slower"), "surely faster");
  EXPECT_EQ(verdict_on(twice(9), "faster", "slower"), "surely faster");
}

TEST(Verdict, IsEqualOnlyIfTheWholeIntervalIsNear) {
  EXPECT_TRUE(surely_equal(Estimate{1, 0.971, 1.03, 0.9375, 5}));
  EXPECT_TRUE(surely_equal(Estimate{1.02, 1.01, 1.029, 0.9375, 5})) << "faster, but hardly";
  EXPECT_FALSE(surely_equal(Estimate{1, 0.970, 1.03, 0.9375, 5}));
  EXPECT_FALSE(surely_equal(Estimate{1, 0.971, 1.031, 0.9375, 5}));
  EXPECT_FALSE(surely_equal(Estimate{1, 0.99, 1.01, 0.875, 4}));
  EXPECT_FALSE(surely_equal(Estimate{1, 1, 1, 0, 1}));
  EXPECT_FALSE(surely_equal(std::nullopt));
  EXPECT_EQ(equal_text(), "equal within 3 %");
  EXPECT_EQ(equal_explained(), "Equal means that the whole interval lies between 0.97 and 1.03.");
}

TEST(Verdict, OfSeveralIsThatOfTheFewestRounds) {
  EXPECT_EQ(of({twice(5), twice(7)}).sure("faster"), "surely faster");
  EXPECT_EQ(of({twice(5), twice(3)}).sure("faster"), "faster in every round");
  EXPECT_EQ(of({twice(1), twice(5)}).sure("faster"), "surely faster");
  EXPECT_TRUE(of({twice(1), twice(2)}).has_intervals());
  EXPECT_FALSE(of({twice(1)}).has_intervals());
}

TEST(Verdict, NamesTheSide) {
  const Estimate below{0.5, 0.4, 0.9, 0.9375, 5}, across{0.9, 0.8, 1.1, 0.9375, 5};
  EXPECT_EQ(verdict_on(below, "faster", "slower"), "surely slower");
  EXPECT_EQ(verdict_on(across, "faster", "slower"), "no significant difference");
  EXPECT_EQ(side_of_one(below, "ddp", "dp"), "dp");
  EXPECT_EQ(side_of_one(twice(2), "ddp", "dp"), "ddp");
  EXPECT_EQ(side_of_one(across, "ddp", "dp"), "no significant difference");
  EXPECT_EQ(side_of_one(twice(1), "ddp", "dp"), "one round");
}

TEST(Verdict, ExplainsItsWords) {
  EXPECT_EQ(Verdict().explained(), "");
  EXPECT_THAT(of({twice(1)}).explained(), HasSubstr("nothing is sure"));
  EXPECT_THAT(of({twice(1), twice(2)}).explained(),
      ContainsRegex("over 2 rounds .* 50 %: .*every round.* not sure.* 5 rounds"));
  EXPECT_THAT(of({twice(5)}).explained(),
      ContainsRegex("over 5 rounds .* 94 %; surely means .* one side of 1"));
  const std::string both = of({twice(6), twice(3)}).explained();
  EXPECT_THAT(both, HasSubstr("over 3 to 6 rounds"));
  EXPECT_THAT(both, HasSubstr("a probability of 75 % to 97 %"));
  EXPECT_THAT(both, Not(HasSubstr("surely means")));
  EXPECT_THAT(both, HasSubstr("Of these 2 intervals about 0.3 miss it by chance."));
  EXPECT_THAT(of(std::vector<Estimate>(16, twice(5))).explained(),
      HasSubstr("one side of 1. Of these 16 intervals about 1 miss it by chance."));
  EXPECT_THAT(of({twice(5)}).explained(), Not(HasSubstr("by chance")));
}

/// A cell with these values in its rounds; none is no sample.
CellResult cell(const std::vector<double>& values) {
  CellResult result;
  for (const double value : values) {
    Sample& sample = result.samples.emplace_back();
    sample.round = static_cast<int>(result.samples.size());
    sample.values["rate"] = value;
  }
  if (!values.empty()) result.estimates["rate"] = estimate_median(values);
  return result;
}

CellResult failed() {
  CellResult result;
  result.samples.emplace_back().failure = "it died";
  return result;
}

std::vector<bool> of(const std::vector<CellResult>& results) { return contenders(results, "rate"); }

TEST(Contenders, AllGoOnUntilEachWasMeasured) {
  EXPECT_THAT(of({cell({}), cell({})}), ElementsAre(true, true));
  EXPECT_THAT(of({cell({10}), cell({}), cell({9})}), ElementsAre(true, true, true));
}

TEST(Contenders, ItEndsWhenTheFirstSurelyIsTheFirst) {
  EXPECT_THAT(of({cell({10, 10, 10, 10}), cell({9, 9, 9, 9})}), ElementsAre(true, true));
  EXPECT_THAT(of({cell({10, 10, 10, 10, 10}), cell({9, 9, 9, 9, 9})}), ElementsAre(false, false))
      << "five rounds on one side";
  EXPECT_THAT(of({cell({10, 10, 10, 10, 10}), cell({9, 9, 9, 9, 11})}), ElementsAre(true, true));
}

TEST(Contenders, OneThatIsSurelySlowerIsLeftOutAndTheOthersGoOn) {
  const std::vector<double> first{10, 10, 10, 10, 10};
  EXPECT_THAT(of({cell({9, 9, 9, 9, 9}), cell({9.9, 11, 10, 9.5, 9.9}), cell(first)}),
      ElementsAre(false, true, true));
}

TEST(Contenders, ItEndsWhenTheOthersAreEqualInPractice) {
  const std::vector<double> first{10, 10, 10, 10, 10};
  EXPECT_THAT(of({cell(first), cell({10, 9.9, 10.1, 9.8, 10.2})}), ElementsAre(false, false))
      << "1 lies in the interval, which lies within 3 %";
  EXPECT_THAT(of({cell({10, 10, 10, 10}), cell({10, 10, 10, 10})}), ElementsAre(true, true))
      << "four rounds are not sure";
  EXPECT_THAT(of({cell(first), cell({10, 9.9, 10.1, 9.6, 10.2})}), ElementsAre(true, true))
      << "9.6 is outside";
  EXPECT_THAT(of({cell(first), cell({10, 9.9, 10.1, 9.8, 10.4})}), ElementsAre(true, true))
      << "and so is 10.4";
}

TEST(Contenders, WhatIsEqualWaitsWhileAnotherIsOpen) {
  const std::vector<double> first{10, 10, 10, 10, 10};
  EXPECT_THAT(of({cell(first), cell({10, 9.9, 10, 9.8, 9.9}), cell({9, 11, 9, 11, 9})}),
      ElementsAre(true, false, true));
}

TEST(Contenders, OneThatIsFarSlowerIsLeftOutSoonerUnlessItIsTheSecond) {
  EXPECT_THAT(of({cell({10}), cell({9}), cell({6})}), ElementsAre(true, true, true));
  EXPECT_THAT(of({cell({10, 10}), cell({9, 9}), cell({6, 6.5})}), ElementsAre(true, true, false));
  EXPECT_THAT(of({cell({10, 10}), cell({9, 9}), cell({6, 7})}), ElementsAre(true, true, true));
  EXPECT_THAT(of({cell({10, 10}), cell({6, 6})}), ElementsAre(true, true))
      << "that the first is the first must be sure";
}

TEST(Contenders, WhatNoConclusionUsesIsLeftOut) {
  CellResult over = cell({20});
  over.oversubscribed = true;
  CellResult refused;
  refused.cell.not_measurable = "it has no layers";
  EXPECT_THAT(of({over, cell({10}), failed(), refused, cell({9})}),
      ElementsAre(false, true, false, false, true));
  EXPECT_THAT(of({over, failed()}), ElementsAre(false, false));
  EXPECT_THAT(of({cell({10}), failed()}), ElementsAre(false, false)) << "nothing to compare with";
}

TEST(Contenders, TheLargestIsThatOfTheLargestMedian) {
  const std::vector<CellResult> cells{cell({5, 6}), cell({1, 20}), cell({}), cell({8, 8})};
  EXPECT_EQ(largest(cells, "rate"), 1U);
  EXPECT_EQ(largest(cells, "rate", 1U), 3U);
  EXPECT_EQ(largest(std::vector{cell({})}, "rate"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::bench
