#include "lockstep/plan/profile/cost_curve.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

TEST(CostCurve, IsAStraightLineBetweenItsPoints) {
  const CostCurve curve({{32, 5}, {8, 2}});
  EXPECT_DOUBLE_EQ(curve(8), 2);
  EXPECT_DOUBLE_EQ(curve(20), 3.5);
  EXPECT_DOUBLE_EQ(curve(32), 5);
}

TEST(CostCurve, GoesOnBeyondTheLastPoint) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {32, 5}})(40), 6);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 5}, {32, 4}})(400), 4) << "a falling line does not go on";
}

TEST(CostCurve, LiesBelowTheFirstPointBetweenItsShareAndAllOfIt) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {32, 5}})(4), 1.5);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {16, 8}})(4), 1) << "not less than half of it";
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {16, 1}})(4), 2) << "not more than all of it";
}

TEST(CostCurve, OfOnePointIsProportional) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}})(32), 8);
  EXPECT_DOUBLE_EQ(CostCurve()(32), 0);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}})(0), 0);
}

TEST(CostCurve, OfALineIsThatLine) {
  const CostCurve curve = CostCurve::of_line(3, 0.5);
  EXPECT_DOUBLE_EQ(curve(1), 3.5);
  EXPECT_DOUBLE_EQ(curve(128), 67);
  EXPECT_NEAR(curve.line().fixed, 3, 1e-9);
  EXPECT_NEAR(curve.line().per_sample, 0.5, 1e-9);
  EXPECT_NEAR(curve.line().residual, 0, 1e-9);
}

TEST(CostCurve, FitsTheLineThroughItsPoints) {
  const auto line = CostCurve({{1, 2}, {2, 2}, {3, 5}}).line();
  EXPECT_NEAR(line.per_sample, 1.5, 1e-9);
  EXPECT_NEAR(line.fixed, 0, 1e-9);
  // 1.5, 3 and 4.5 beside 2, 2 and 5: a quarter, a half and a tenth off.
  EXPECT_NEAR(line.residual, 0.3279, 1e-4);
}

TEST(CostCurve, AddsUp) {
  const CostCurve sum = CostCurve({{8, 2}, {32, 5}}) + CostCurve({{20, 1}});
  EXPECT_DOUBLE_EQ(sum(8), 2.4);
  EXPECT_DOUBLE_EQ(sum(20), 4.5);
  EXPECT_DOUBLE_EQ(sum(32), 6.6);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}}).times(3)(8), 6);
}

TEST(CostCurve, RefusesWhatIsNoCost) {
  EXPECT_THROW(CostCurve({{0, 1}}), InvalidArgument);
  EXPECT_THROW(CostCurve({{1, -1}}), InvalidArgument);
  EXPECT_THROW(CostCurve({{1, 1}, {1, 2}}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::plan
