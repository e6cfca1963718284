// What is drawn against timm's own draws, of which tests/conformance/transforms.py has written mean
// and deviation: they may differ by what chance explains, five standard errors.

#include <cmath>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "lockstep/data/transforms/augment_step.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/rand_augment.h"
#include "lockstep/data/transforms/random_erasing.h"

namespace lockstep::data {
namespace {

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
