#include "lockstep/data/transforms/rand_augment.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "tests/data/transforms/test_images.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/crop.h"

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

// A greatest magnitude above timm's usual one: its Pillow makes the image black.
TEST(RandAugment, KeepsNoBitsBeyondTheGreatestMagnitude) {
  for (const double magnitude : {12.5, 15., 1000.})
    EXPECT_EQ(augment_argument(AugmentOp::kPosterize, magnitude, /*increasing=*/true, false), 0);
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

// What is drawn against timm's own draws, of which tests/conformance/transforms.py has written mean
// and deviation: they may differ by what chance explains, five standard errors.

using Values = std::vector<double>;
using Draws = std::map<std::string, Values>;

constexpr std::int64_t kDraws = 40'000;
constexpr double kStandardErrors = 5;

struct Expected {
  double count = 0;
  double mean = 0;
  double deviation = 0;
};

std::map<std::string, Expected> timm_draws() {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/transforms/draws.txt");
  std::map<std::string, Expected> all;
  std::string name;
  for (Expected one; file >> name >> one.count >> one.mean >> one.deviation;) all[name] = one;
  return all;
}

double mean_of(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double deviation_of(const Values& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

void expect_alike(const Draws& draws) {
  const auto expected = timm_draws();
  for (const auto& [name, values] : draws) {
    ASSERT_TRUE(expected.contains(name)) << name;
    const Expected& theirs = expected.at(name);
    const double chance = 1 / theirs.count + 1 / static_cast<double>(values.size());
    const double error = theirs.deviation * std::sqrt(chance);
    EXPECT_NEAR(mean_of(values), theirs.mean, kStandardErrors * error + 1e-9) << name;
    EXPECT_NEAR(deviation_of(values), theirs.deviation, kStandardErrors * error + 1e-9) << name;
  }
}

Draws crop_draws(const std::string& name, ImageSize size) {
  Draws draws;
  for (std::int64_t index = 0; index < kDraws; ++index) {
    RandomStream stream({7, 0, index}, Draw::kCrop);
    const Box box = random_area_box(size, {}, stream);
    const auto width = static_cast<double>(box.width);
    const auto height = static_cast<double>(box.height);
    draws[name + "_share"].push_back(
        width * height / static_cast<double>(size.width * size.height));
    draws[name + "_log_ratio"].push_back(std::log(width / height));
    draws[name + "_left"].push_back(static_cast<double>(box.left));
    draws[name + "_top"].push_back(static_cast<double>(box.top));
  }
  return draws;
}

TEST(Draws, OfCropsAreThoseOfTimm) {
  expect_alike(crop_draws("crop_32x32", {32, 32}));
  expect_alike(crop_draws("crop_500x375", {500, 375}));
  expect_alike(crop_draws("crop_400x100", {400, 100}));
}

TEST(Draws, OfStepsAreThoseOfTimm) {
  const std::array<std::string, kAugmentOps> names{"auto_contrast", "equalize", "invert", "rotate",
      "posterize", "solarize", "solarize_add", "saturation", "contrast", "brightness", "sharpness",
      "shear_x", "shear_y", "translate_x", "translate_y"};
  Draws draws;
  for (std::int64_t index = 0; index < kDraws; ++index) {
    RandomStream stream({7, 0, index}, Draw::kColour);
    const auto steps = draw_steps(parse_rand_augment("rand-m9-mstd0.5-inc1"), stream);
    draws["steps"].push_back(static_cast<double>(steps.size()));
    for (const AugmentStep& step : steps) {
      const auto own = static_cast<std::size_t>(step.op);
      for (std::size_t op = 0; op < names.size(); ++op) {
        draws[names[op] + "_share"].push_back(op == own ? 1 : 0);
      }
      if (own > 2) draws[names[own] + "_argument"].push_back(step.argument);
    }
  }
  EXPECT_EQ(draws.size(), 28U);
  expect_alike(draws);
}

Draws erasing_draws(const std::string& name, ImageSize size, std::int64_t count) {
  Draws draws;
  const auto pixels = static_cast<std::size_t>(size.width * size.height);
  for (std::int64_t index = 0; index < kDraws / 4; ++index) {
    std::vector<float> image(pixels, 1);
    RandomStream stream({7, 0, index}, Draw::kErasing);
    erase_randomly(image, size, {0.25, ErasingMode::kConstant, count}, stream);
    const auto first = std::find(image.begin(), image.end(), 0) - image.begin();
    const auto zeros = static_cast<double>(std::count(image.begin(), image.end(), 0));
    draws[name + "_share"].push_back(zeros / static_cast<double>(pixels));
    draws[name + "_any"].push_back(zeros > 0);
    const std::int64_t top = first / size.width;
    if (zeros > 0) draws[name + "_top"].push_back(static_cast<double>(top));
    erase_randomly(image, size, {1, ErasingMode::kPixel}, stream);
    const float middle =
        image[static_cast<std::size_t>(size.height / 2 * size.width + size.width / 2)];
    draws[name + "_pixel"].push_back(middle == 1 ? 0 : middle);
  }
  return draws;
}

TEST(Draws, OfErasedRectanglesAreThoseOfTimm) {
  expect_alike(erasing_draws("erasing_32x32_1", {32, 32}, 1));
  expect_alike(erasing_draws("erasing_40x20_2", {40, 20}, 2));
}

TEST(Draws, OfColourJitterAreThoseOfTorchvision) {
  Draws draws;
  for (std::int64_t index = 0; index < kDraws; ++index) {
    RandomStream stream({7, 0, index}, Draw::kColour);
    const auto steps = draw_jitter({.brightness = 0.4}, stream);
    ASSERT_EQ(steps.size(), 1U);
    draws["jitter_brightness"].push_back(steps.front().argument);
  }
  expect_alike(draws);
}

}  // namespace
}  // namespace lockstep::data
