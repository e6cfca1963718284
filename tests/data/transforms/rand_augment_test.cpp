#include "lockstep/data/transforms/rand_augment.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "tests/data/transforms/test_images.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/augment_step.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& config) {
  return lockstep::testing::message_of<InvalidArgument>([&] { parse_rand_augment(config); });
}

TEST(ParseRandAugment, ReadsWhatTimmReads) {
  EXPECT_EQ(parse_rand_augment("rand"), RandAugmentOptions{});
  EXPECT_EQ(parse_rand_augment("rand-m9-mstd0.5-inc1"),
      (RandAugmentOptions{.magnitude = 9, .deviation = 0.5, .increasing = true}));
  EXPECT_EQ(parse_rand_augment("rand-n3-p0.25-mmax15-m12-inc0"),
      (RandAugmentOptions{.magnitude = 12, .maximum = 15, .probability = 0.25, .layers = 3}));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(parse_rand_augment("rand-mstd101").deviation, infinity);
  EXPECT_EQ(parse_rand_augment("rand-mstd100").deviation, 100);
  EXPECT_EQ(parse_rand_augment("rand-mmax0").maximum, 10);
}

TEST(ParseRandAugment, RefusesTheRest) {
  EXPECT_EQ(refusal("rnd-m9"),
      "RandAugment: no \"rand\" at the start in \"rnd-m9\"; give a string as "
      "\"rand-m9-mstd0.5-inc1\"");
  EXPECT_THAT(refusal(""), HasSubstr("no \"rand\" at the start"));
  EXPECT_THAT(refusal("rand9"), HasSubstr("no \"rand\" at the start"));
  EXPECT_THAT(refusal("rand-"), HasSubstr("a section without a number: \"\""));
  EXPECT_THAT(refusal("rand-m"), HasSubstr("a section without a number: \"m\""));
  EXPECT_THAT(refusal("rand-tweights"), HasSubstr("a section without a number: \"tweights\""));
  EXPECT_THAT(refusal("rand-m9-t3a"), HasSubstr("an unknown section: \"t3a\""));
  EXPECT_THAT(refusal("rand-w0"), HasSubstr("an unknown section: \"w0\""));
  EXPECT_THAT(refusal("rand-m9.5"), HasSubstr("no whole number: \"9.5\""));
  EXPECT_THAT(refusal("rand-m9x"), HasSubstr("no number: \"9x\""));
  EXPECT_THAT(refusal("rand-n99999999"), HasSubstr("no whole number: \"99999999\""));
  EXPECT_THAT(refusal("rand-p1.5"), HasSubstr("a probability over 1: 1.5"));
  EXPECT_THAT(refusal("rand-mstd1e999"), HasSubstr("no number: \"1e999\""));
}

std::map<std::string, AugmentOp> ops_by_name() {
  return {{"rotate", AugmentOp::kRotate}, {"posterize", AugmentOp::kPosterize},
      {"solarize", AugmentOp::kSolarize}, {"solarize_add", AugmentOp::kSolarizeAdd},
      {"saturation", AugmentOp::kSaturation}, {"contrast", AugmentOp::kContrast},
      {"brightness", AugmentOp::kBrightness}, {"sharpness", AugmentOp::kSharpness},
      {"shear_x", AugmentOp::kShearX}, {"shear_y", AugmentOp::kShearY},
      {"translate_x", AugmentOp::kTranslateX}, {"translate_y", AugmentOp::kTranslateY}};
}

TEST(RandAugment, GivesOperationsTheArgumentsOfTimm) {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/transforms/arguments.txt");
  std::string name;
  bool increasing = false;
  bool negated = false;
  double magnitude = 0;
  double argument = 0;
  int lines = 0;
  const auto all = ops_by_name();
  while (file >> name >> increasing >> negated >> magnitude >> argument) {
    EXPECT_DOUBLE_EQ(augment_argument(all.at(name), magnitude, increasing, negated), argument)
        << name << " " << increasing << negated << " " << magnitude;
    ++lines;
  }
  EXPECT_EQ(lines, 528);
}

RandomStream colour_stream(std::int64_t index) { return {{1, 2, index}, Draw::kColour}; }

TEST(RandAugment, DrawsAsManyStepsAsLayersIfSure) {
  for (std::int64_t index = 0; index < 100; ++index) {
    auto stream = colour_stream(index);
    EXPECT_EQ(draw_steps({.probability = 1, .layers = 7}, stream).size(), 7U);
    EXPECT_TRUE(draw_steps({.probability = 0, .layers = 7}, stream).empty());
  }
}

// Translations grow with the magnitude, so that they show how it was drawn.
std::set<double> magnitudes(const RandAugmentOptions& options) {
  std::set<double> all;
  for (std::int64_t index = 0; index < 2000; ++index) {
    auto stream = colour_stream(index);
    for (const AugmentStep& step : draw_steps(options, stream)) {
      if (step.op == AugmentOp::kTranslateX) all.insert(std::abs(step.argument) / 0.045);
    }
  }
  return all;
}

TEST(RandAugment, CutsMagnitudesOff) {
  const auto normal = magnitudes({.magnitude = 9, .deviation = 0.5});
  EXPECT_GT(normal.size(), 50U);
  EXPECT_DOUBLE_EQ(*normal.rbegin(), 10);
  EXPECT_LT(*normal.begin(), 8.2);
  EXPECT_DOUBLE_EQ(*magnitudes({.magnitude = 9, .deviation = 20}).begin(), 0);
  EXPECT_GT(*magnitudes({.magnitude = 14, .deviation = 0.5, .maximum = 20}).rbegin(), 14.5);
  EXPECT_THAT(magnitudes({.magnitude = 4}), ::testing::Each(::testing::DoubleEq(4)));
}

TEST(RandAugment, DrawsEvenlyForAnInfiniteDeviation) {
  const auto even =
      magnitudes({.magnitude = 8, .deviation = std::numeric_limits<double>::infinity()});
  EXPECT_LT(*even.begin(), 0.3);
  EXPECT_GT(*even.rbegin(), 7.7);
  EXPECT_LT(*even.rbegin(), 8);
}

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
