#include "lockstep/bench/studies/sureness.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/bench/statistics/ratio.h"

namespace lockstep::bench {
namespace {

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

TEST(Sureness, TellsFromOneOnlyByTheWholeInterval) {
  EXPECT_TRUE(above_one(Estimate{1.5, 1.01, 1.6, 0.75, 3}));
  EXPECT_FALSE(above_one(Estimate{1.5, 1.0, 1.6, 0.75, 3}));
  EXPECT_FALSE(above_one(Estimate{1.5, 1.5, 1.5, 0, 1}));
  EXPECT_TRUE(below_one(Estimate{0.5, 0.4, 0.99, 0.75, 3}));
  EXPECT_FALSE(below_one(std::nullopt));
}

TEST(Sureness, IsSureFromFiveRoundsOn) {
  EXPECT_EQ(told_from_one(twice(1), "faster", "slower"), "one round, so not sure");
  EXPECT_EQ(told_from_one(twice(2), "faster", "slower"), "faster in every round");
  EXPECT_EQ(told_from_one(twice(4), "faster", "slower"), "faster in every round");
  EXPECT_EQ(told_from_one(twice(5), "faster", "slower"), "surely faster");
  EXPECT_EQ(told_from_one(twice(9), "faster", "slower"), "surely faster");
}

TEST(Sureness, OfSeveralIsThatOfTheFewestRounds) {
  EXPECT_EQ(sure(std::vector{twice(5), twice(7)}, "faster"), "surely faster");
  EXPECT_EQ(sure(std::vector{twice(5), twice(3)}, "faster"), "faster in every round");
  EXPECT_EQ(sure(std::vector{twice(1), twice(5)}, "faster"), "surely faster");
  EXPECT_TRUE(has_intervals(std::vector{twice(1), twice(2)}));
  EXPECT_FALSE(has_intervals(std::vector{twice(1)}));
}

TEST(Sureness, NamesTheSide) {
  const Estimate below{0.5, 0.4, 0.9, 0.9375, 5}, across{0.9, 0.8, 1.1, 0.9375, 5};
  EXPECT_EQ(told_from_one(below, "faster", "slower"), "surely slower");
  EXPECT_EQ(told_from_one(across, "faster", "slower"), "not told apart");
  EXPECT_EQ(side_of_one(below, "ddp", "dp"), "dp");
  EXPECT_EQ(side_of_one(twice(2), "ddp", "dp"), "ddp");
  EXPECT_EQ(side_of_one(across, "ddp", "dp"), "not told apart");
  EXPECT_EQ(side_of_one(twice(1), "ddp", "dp"), "one round");
}

TEST(Sureness, ExplainsItsWords) {
  EXPECT_EQ(about_sureness({}), "");
  EXPECT_THAT(about_sureness(std::vector{twice(1)}), HasSubstr("nothing is sure"));
  EXPECT_EQ(
      about_sureness(std::vector{twice(1), twice(2)}),
      "An interval over 2 rounds holds the true ratio with a probability of 50 %: what was so in "
      "every round is likely, but not sure, for which it takes 5 rounds.");
  EXPECT_EQ(
      about_sureness(std::vector{twice(5)}),
      "An interval over 5 rounds holds the true ratio with a probability of 94 %; sure means that "
      "the whole of it lies on one side of 1.");
  const std::string both = about_sureness(std::vector{twice(6), twice(3)});
  EXPECT_THAT(both, HasSubstr("over 3 to 6 rounds"));
  EXPECT_THAT(both, HasSubstr("a probability of 75 % to 97 %"));
  EXPECT_THAT(both, Not(HasSubstr("sure means")));
}

}  // namespace
}  // namespace lockstep::bench
