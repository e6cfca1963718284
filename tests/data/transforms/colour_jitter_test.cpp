#include "lockstep/data/transforms/colour_jitter.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

std::vector<AugmentStep> drawn(const ColourJitter& jitter, std::int64_t index) {
  RandomStream stream({1, 2, index}, Draw::kColour);
  return draw_jitter(jitter, stream);
}

TEST(ColourJitter, TakesEveryOrderEquallyOften) {
  std::map<std::vector<AugmentOp>, int> orders;
  for (std::int64_t index = 0; index < 6000; ++index) {
    std::vector<AugmentOp> order;
    for (const AugmentStep& step : drawn({0.4, 0.4, 0.4}, index)) order.push_back(step.op);
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 6U);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 150);
}

TEST(ColourJitter, KeepsEachFactorWithinItsOwnBound) {
  std::map<AugmentOp, std::pair<double, double>> ranges;
  for (std::int64_t index = 0; index < 2000; ++index) {
    for (const auto& [op, factor] : drawn({0.25, 0.5, 1.5}, index)) {
      auto& [least, most] = ranges.try_emplace(op, factor, factor).first->second;
      least = std::min(least, factor);
      most = std::max(most, factor);
    }
  }
  const auto expect_range = [&](AugmentOp op, double least, double most) {
    EXPECT_NEAR(ranges[op].first, least, 0.02);
    EXPECT_NEAR(ranges[op].second, most, 0.02);
  };
  expect_range(AugmentOp::kBrightness, 0.75, 1.25);
  expect_range(AugmentOp::kContrast, 0.5, 1.5);
  expect_range(AugmentOp::kSaturation, 0, 2.5);
}

TEST(ColourJitter, LeavesAPropertyWithoutBoundAlone) {
  const auto steps = drawn({.contrast = 0.1}, 0);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps.front().op, AugmentOp::kContrast);
  EXPECT_TRUE(drawn({}, 0).empty());
  EXPECT_FALSE(ColourJitter{}.any());
  EXPECT_TRUE((ColourJitter{.saturation = 0.1}).any());
}

}  // namespace
}  // namespace lockstep::data
