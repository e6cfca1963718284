// The rule by which a study stops when it knows which of its cells is the best.

#include "bench/study/contenders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

using ::testing::ElementsAre;

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
