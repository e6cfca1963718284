#include "lockstep/nn/fused/conv_relu_pool_kernel.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace lockstep::nn::fused {
namespace {

constexpr ConvReluPoolShape kShape{.height = 11, .width = 45, .channels = 6};
constexpr std::int64_t kImages = 3;
constexpr std::int64_t kPooled = kImages * 6 * 5 * 22;

std::vector<float> random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

struct Outcome {
  std::vector<float> pooled, sums;
  std::vector<std::uint8_t> codes;
};

Outcome outcome_of(const ConvReluPoolKernel& kernel) {
  const auto images = random_floats(kImages * 11 * 45, 1), weight = random_floats(6 * 9, 2);
  const auto bias = random_floats(6, 3), gradient = random_floats(kPooled, 4);
  Outcome outcome{
      std::vector<float>(kPooled), std::vector<float>(6 * 10), std::vector<std::uint8_t>(kPooled)};
  std::vector<float> scratch(static_cast<std::size_t>(kernel.forward_scratch(kShape)));
  kernel.forward({.shape = kShape,
      .image_element = Element::kFloat,
      .pooled_element = Element::kFloat,
      .image_count = kImages,
      .images = images.data(),
      .weight = weight.data(),
      .bias = bias.data(),
      .pooled = outcome.pooled.data(),
      .codes = outcome.codes.data(),
      .scratch = scratch.data()});
  scratch.resize(static_cast<std::size_t>(kernel.backward_scratch(kShape)));
  kernel.backward({.shape = kShape,
      .image_element = Element::kFloat,
      .pooled_element = Element::kFloat,
      .image_count = kImages,
      .images = images.data(),
      .pooled_gradient = gradient.data(),
      .codes = outcome.codes.data(),
      .sums = outcome.sums.data(),
      .scratch = scratch.data()});
  return outcome;
}

// Builds differ only in how they round: fused multiply-adds, and the order of the last sum.
TEST(ConvReluPoolKernel, AllBuildsAgree) {
  const Outcome plain = outcome_of(conv_relu_pool_plain());
  const ConvReluPoolKernels found = conv_relu_pool_kernels();
  for (int i = 0; i < found.count; ++i) {
    const Outcome other = outcome_of(*found.kernels[i]);
    EXPECT_EQ(other.codes, plain.codes) << found.kernels[i]->name;
    for (std::size_t at = 0; at < plain.pooled.size(); ++at) {
      ASSERT_NEAR(other.pooled[at], plain.pooled[at], 1e-5) << found.kernels[i]->name << at;
    }
    for (std::size_t at = 0; at < plain.sums.size(); ++at) {
      ASSERT_NEAR(other.sums[at], plain.sums[at], 2e-4) << found.kernels[i]->name << at;
    }
  }
}

// Exact arrays with a guard behind what is written; the sanitizers' build also sees what is read.
void run_inside(const ConvReluPoolKernel& kernel, const ConvReluPoolShape& shape,
    Element image_element, Element pooled_element) {
  const auto bytes = [](Element element) { return element == Element::kFloat ? 4U : 2U; };
  const auto pixels = static_cast<std::size_t>(shape.height * shape.width);
  const auto windows =
      static_cast<std::size_t>(shape.channels * (shape.height / 2) * (shape.width / 2));
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::vector<std::uint8_t> images(pixels * bytes(image_element));
  const std::vector<float> weight(channels * 9, 1), bias(channels, 1);
  std::vector<std::uint8_t> pooled(windows * bytes(pooled_element) + 1, 77), codes(windows + 1, 77);
  std::vector<float> sums(channels * 10 + 1, 77);
  std::vector<float> scratch(static_cast<std::size_t>(kernel.forward_scratch(shape)));
  kernel.forward({.shape = shape,
      .image_element = image_element,
      .pooled_element = pooled_element,
      .image_count = 1,
      .images = images.data(),
      .weight = weight.data(),
      .bias = bias.data(),
      .pooled = pooled.data(),
      .codes = codes.data(),
      .scratch = scratch.data()});
  const std::vector<std::uint8_t> gradient(windows * bytes(pooled_element));
  const std::vector<std::uint8_t> exact_codes(codes.begin(), codes.end() - 1);
  scratch = std::vector<float>(static_cast<std::size_t>(kernel.backward_scratch(shape)));
  kernel.backward({.shape = shape,
      .image_element = image_element,
      .pooled_element = pooled_element,
      .image_count = 1,
      .images = images.data(),
      .pooled_gradient = gradient.data(),
      .codes = exact_codes.data(),
      .sums = sums.data(),
      .scratch = scratch.data()});
  EXPECT_EQ(pooled.back(), 77);
  EXPECT_EQ(codes.back(), 77);
  EXPECT_EQ(sums.back(), 77);
  for (const std::uint8_t code : exact_codes) EXPECT_LE(code, kDead);
}

TEST(ConvReluPoolKernel, StaysInsideItsArrays) {
  const ConvReluPoolKernels found = conv_relu_pool_kernels();
  for (int i = 0; i < found.count; ++i) {
    for (const std::int64_t height : {2, 3, 8}) {
      for (const std::int64_t width : {2, 3, 7, 28, 32, 33, 34, 70}) {
        for (const auto image : {Element::kFloat, Element::kBFloat16}) {
          run_inside(*found.kernels[i], {height, width, 3}, image, Element::kFloat);
          run_inside(*found.kernels[i], {height, width, 3}, image, Element::kBFloat16);
        }
      }
    }
  }
}

TEST(ConvReluPoolKernel, ListsThePlainBuildFirst) {
  const ConvReluPoolKernels found = conv_relu_pool_kernels();
  ASSERT_GE(found.count, 1);
  EXPECT_STREQ(found.kernels[0]->name, "plain");
}

}  // namespace
}  // namespace lockstep::nn::fused
