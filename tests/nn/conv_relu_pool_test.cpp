#include "lockstep/nn/fused/conv_relu_pool.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/nn/autocast.h"

namespace lockstep::nn::fused {
namespace {

struct Layer {
  at::Tensor weight, bias;

  explicit Layer(std::int64_t channels, std::int64_t inputs = 1, at::ScalarType type = at::kFloat)
      : weight(at::randn({channels, inputs, 3, 3}, type).set_requires_grad(true)),
        bias(at::randn({channels}, type).set_requires_grad(true)) {}

  void forget_gradients() const {
    weight.mutable_grad().reset();
    bias.mutable_grad().reset();
  }
};

at::Tensor plain_chain(const at::Tensor& images, const Layer& layer) {
  return at::max_pool2d(at::conv2d(images, layer.weight, layer.bias, 1, 1).relu(), 2);
}

struct Result {
  at::Tensor pooled, weight_gradient, bias_gradient;
};

Result result_of(const at::Tensor& pooled, const Layer& layer, const at::Tensor& pooled_gradient) {
  layer.forget_gradients();
  pooled.backward(pooled_gradient.to(pooled.scalar_type()));
  return {pooled.detach(), layer.weight.grad().clone(), layer.bias.grad().clone()};
}

void expect_near(const at::Tensor& a, const at::Tensor& b, double tolerance, const char* what) {
  const auto a32 = a.to(at::kDouble), b32 = b.to(at::kDouble);
  const double size = std::max(1.0, b32.abs().max().item<double>());
  EXPECT_EQ(a.sizes(), b.sizes()) << what;
  EXPECT_LE((a32 - b32).abs().max().item<double>(), tolerance * size) << what;
}

void expect_near(const Result& a, const Result& b, double tolerance) {
  expect_near(a.pooled, b.pooled, tolerance, "pooled");
  expect_near(a.weight_gradient, b.weight_gradient, tolerance, "weight gradient");
  expect_near(a.bias_gradient, b.bias_gradient, tolerance, "bias gradient");
}

Result fused_result(const at::Tensor& images, const Layer& layer, const at::Tensor& gradient) {
  EXPECT_TRUE(is_conv_relu_pool_fused(images, layer.weight, layer.bias));
  return result_of(conv_relu_pool(images, layer.weight, layer.bias), layer, gradient);
}

class Sizes : public ::testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(Sizes, AgreesWithAtenInFloat) {
  torch::manual_seed(1);
  const auto& sizes = GetParam();
  const Layer layer(sizes[3]);
  const auto images = at::randn({sizes[0], 1, sizes[1], sizes[2]});
  const auto gradient = at::randn({sizes[0], sizes[3], sizes[1] / 2, sizes[2] / 2});
  const auto expected = result_of(plain_chain(images, layer), layer, gradient);
  expect_near(fused_result(images, layer, gradient), expected, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(ConvReluPool, Sizes,
    ::testing::Values(
        std::vector<std::int64_t>{128, 28, 28, 32},  // images, height, width, channels
        std::vector<std::int64_t>{1, 2, 2, 1}, std::vector<std::int64_t>{3, 3, 3, 2},
        std::vector<std::int64_t>{2, 5, 7, 3}, std::vector<std::int64_t>{33, 9, 4, 5},
        std::vector<std::int64_t>{2, 2, 33, 3}, std::vector<std::int64_t>{2, 33, 2, 3},
        std::vector<std::int64_t>{2, 8, 32, 16}, std::vector<std::int64_t>{2, 6, 70, 4},
        std::vector<std::int64_t>{1, 64, 65, 17}));

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

// ATen rounds weights and convolution results to bf16, which moves winners; ours are never further
// off.
TEST(ConvReluPool, AgreesWithFullPrecisionUnderAutocastAndBetterThanAten) {
  torch::manual_seed(2);
  const Layer layer(32);
  const auto images = at::rand({40, 1, 28, 28}).to(at::kBFloat16);
  const auto gradient = at::randn({40, 32, 14, 14}).to(at::kBFloat16);
  const auto expected =
      result_of(plain_chain(images.to(at::kFloat), layer), layer, gradient.to(at::kFloat));
  const auto theirs = [&] {
    const Autocast autocast(at::kCPU);
    return result_of(plain_chain(images, layer), layer, gradient);
  }();
  for (const auto& stored : {images, images.to(at::kFloat)}) {
    const Autocast autocast(at::kCPU);
    const auto result = fused_result(stored, layer, gradient);
    EXPECT_EQ(result.pooled.scalar_type(), at::kBFloat16);
    EXPECT_EQ(result.weight_gradient.scalar_type(), at::kFloat);
    // Rounding to bf16 moves a value by at most 2^-8 of it; the gradients' sums are fp32.
    expect_near(result.pooled, expected.pooled, 1.0 / 256, "pooled");
    expect_near(result.weight_gradient, expected.weight_gradient, 1e-5, "weight gradient");
    expect_near(result.bias_gradient, expected.bias_gradient, 1e-5, "bias gradient");
    EXPECT_LT(distance(result.pooled, expected.pooled), distance(theirs.pooled, expected.pooled));
    EXPECT_LT(distance(result.weight_gradient, expected.weight_gradient),
        distance(theirs.weight_gradient, expected.weight_gradient));
  }
}

// Halves between two bf16 values go to the even one; with zero weights the bias is the result.
TEST(ConvReluPool, RoundsAsLibTorch) {
  const Layer layer(64);
  layer.weight.detach().zero_();
  layer.bias.detach().copy_(1 + at::arange(64, at::kFloat) / 1024);
  const auto images = at::ones({1, 1, 4, 4});
  const auto full = conv_relu_pool(images, layer.weight, layer.bias);
  const Autocast autocast(at::kCPU);
  const auto shorter = conv_relu_pool(images, layer.weight, layer.bias);
  EXPECT_TRUE(shorter.equal(full.to(at::kBFloat16)));
}

TEST(ConvReluPool, GivesTheFirstOfEqualsTheGradient) {
  // Whole numbers make many equal winners and many zeros.
  torch::manual_seed(3);
  const Layer layer(6);
  layer.weight.detach().copy_(at::randint(-1, 2, {6, 1, 3, 3}));
  layer.bias.detach().copy_(at::randint(-1, 2, {6}));
  const auto images = at::randint(0, 2, {16, 1, 12, 20}).to(at::kFloat);
  const auto gradient = at::randint(-4, 5, {16, 6, 6, 10}).to(at::kFloat);
  const auto expected = result_of(plain_chain(images, layer), layer, gradient);
  expect_near(fused_result(images, layer, gradient), expected, 0);
}

TEST(ConvReluPool, SpreadsNaNAsAten) {
  torch::manual_seed(4);
  const Layer layer(3);
  for (const float bad :
      {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto images = at::randn({1, 1, 8, 8});
    images[0][0][3][2] = bad;
    const auto gradient = at::randn({1, 3, 4, 4});
    const auto theirs = result_of(plain_chain(images, layer), layer, gradient);
    const auto ours = fused_result(images, layer, gradient);
    EXPECT_TRUE(ours.pooled.isnan().equal(theirs.pooled.isnan())) << bad;
    EXPECT_TRUE(ours.pooled.isinf().equal(theirs.pooled.isinf())) << bad;
    EXPECT_FALSE(ours.weight_gradient.isfinite().all().item<bool>()) << bad;
    expect_near(ours.bias_gradient, theirs.bias_gradient, 1e-5, "bias gradient");
    const Autocast autocast(at::kCPU);
    EXPECT_TRUE(
        conv_relu_pool(images, layer.weight, layer.bias).isnan().equal(theirs.pooled.isnan()));
  }
}

TEST(ConvReluPool, TakesAnyStrides) {
  torch::manual_seed(5);
  const Layer layer(4);
  const auto wide = at::randn({3, 1, 6, 20});
  const auto images = wide.slice(3, 0, 20, 2);
  const auto wide_gradient = at::randn({3, 3, 5, 4});
  const auto gradient = wide_gradient.permute({0, 3, 1, 2});
  const auto expected = result_of(plain_chain(images.contiguous(), layer), layer, gradient);
  expect_near(fused_result(images, layer, gradient), expected, 1e-5);
  const auto nhwc = images.contiguous().view({3, 6, 10, 1}).permute({0, 3, 1, 2});
  expect_near(fused_result(nhwc, layer, gradient), expected, 1e-5);
}

TEST(ConvReluPool, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(7);
  const Layer layer(8);
  const auto images = at::randn({100, 1, 10, 10});
  const auto gradient = at::randn({100, 8, 5, 5});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = fused_result(images, layer, gradient);
  at::set_num_threads(2);
  const auto two = fused_result(images, layer, gradient);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.weight_gradient.equal(two.weight_gradient));
  EXPECT_TRUE(one.bias_gradient.equal(two.bias_gradient));
}

TEST(ConvReluPool, GivesTheSameWithoutGradients) {
  const Layer layer(3);
  const auto images = at::randn({2, 1, 6, 6});
  const auto expected = conv_relu_pool(images, layer.weight, layer.bias);
  EXPECT_TRUE(expected.requires_grad());
  const auto wanting = images.clone().set_requires_grad(true);
  const c10::InferenceMode inference;
  EXPECT_TRUE(is_conv_relu_pool_fused(wanting, layer.weight, layer.bias));
  const auto pooled = conv_relu_pool(wanting, layer.weight, layer.bias);
  EXPECT_FALSE(pooled.requires_grad());
  EXPECT_TRUE(pooled.equal(expected));
}

TEST(ConvReluPool, HasSecondDerivativesAsAten) {
  torch::manual_seed(9);
  const Layer layer(4);
  const auto images = at::randn({3, 1, 6, 8});
  const std::vector<at::Tensor> wanted{layer.weight, layer.bias};
  const auto second = [&](const at::Tensor& pooled) {
    at::Tensor penalty = at::zeros({});
    for (const auto& gradient :
        torch::autograd::grad({pooled.pow(3).mean()}, wanted, {}, true, true))
      penalty = penalty + gradient.square().sum();
    return torch::autograd::grad({penalty}, wanted);
  };
  const auto ours = second(conv_relu_pool(images, layer.weight, layer.bias));
  const auto theirs = second(plain_chain(images, layer));
  for (std::size_t i = 0; i < theirs.size(); ++i)
    expect_near(ours[i], theirs[i], 1e-4, i == 0 ? "weight" : "bias");
  const Autocast autocast(at::kCPU);
  const auto mixed = second(conv_relu_pool(images, layer.weight, layer.bias).to(at::kFloat));
  for (std::size_t i = 0; i < theirs.size(); ++i) expect_near(mixed[i], theirs[i], 0.1, "bf16");
}

struct Uncovered {
  const char* what;
  at::Tensor images;
  Layer layer;
};

TEST(ConvReluPool, LeavesEverythingElseToAten) {
  torch::manual_seed(8);
  const auto f32 = at::kFloat, f64 = at::kDouble;
  const std::vector<Uncovered> cases{
      {"input gradient", at::randn({2, 1, 6, 6}).set_requires_grad(true), Layer(3)},
      {"three channels", at::randn({2, 3, 6, 6}), Layer(4, 3)},
      {"double", at::randn({2, 1, 6, 6}, f64), Layer(3, 1, f64)},
      {"bfloat16 weights", at::randn({2, 1, 6, 6}, at::kBFloat16), Layer(3, 1, at::kBFloat16)},
      {"no images", at::zeros({0, 1, 6, 6}, f32), Layer(3)},
      {"negated", at::_neg_view(at::randn({2, 1, 6, 6})), Layer(3)},
  };
  for (const auto& [what, images, layer] : cases) {
    EXPECT_FALSE(is_conv_relu_pool_fused(images, layer.weight, layer.bias)) << what;
    const auto pooled = conv_relu_pool(images, layer.weight, layer.bias);
    const auto expected = plain_chain(images, layer);
    EXPECT_TRUE(at::allclose(pooled, expected, 1e-2, 1e-5)) << what;
    pooled.sum().backward();
    EXPECT_TRUE(layer.weight.grad().defined()) << what;
    EXPECT_EQ(images.grad().defined(), images.requires_grad()) << what;
  }
  const Layer layer(3);
  const Autocast autocast(at::kCPU, at::kHalf);
  EXPECT_FALSE(is_conv_relu_pool_fused(at::randn({2, 1, 6, 6}), layer.weight, layer.bias));
}

TEST(ConvReluPool, AtensChainKeepsChannelsLast) {
  const Layer layer(32);
  const Autocast autocast(at::kCPU);
  const auto pooled =
      conv_relu_pool_by_aten(at::randn({2, 1, 28, 28}, at::kBFloat16), layer.weight, layer.bias);
  EXPECT_TRUE(pooled.is_contiguous(at::MemoryFormat::ChannelsLast));
}

constexpr ConvReluPoolShape kShape{.height = 11, .width = 45, .channels = 6};
constexpr std::int64_t kImages = 3;
constexpr std::int64_t kWindows = kImages * 5 * 22, kPooled = kWindows * 6;

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

// Runs forward, then backward from its codes, in exact arrays; the sanitizers' build also sees what
// is read.
void run(const ConvReluPoolKernel& kernel, ForwardJob job, const void* gradient, float* sums) {
  const auto& shape = job.shape;
  std::vector<float> scratch(static_cast<std::size_t>(kernel.forward_scratch(shape)));
  job.scratch = scratch.data();
  kernel.forward(job);
  const std::vector<std::uint8_t> codes(job.codes,
      job.codes + job.image_count * (shape.height / 2) * (shape.width / 2) * job.code_stride);
  scratch = std::vector<float>(static_cast<std::size_t>(kernel.backward_scratch(shape)));
  kernel.backward({.shape = shape,
      .code_stride = job.code_stride,
      .image_element = job.image_element,
      .pooled_element = job.pooled_element,
      .image_count = job.image_count,
      .images = job.images,
      .pooled_gradient = gradient,
      .codes = codes.data(),
      .sums = sums,
      .scratch = scratch.data()});
}

Outcome outcome_of(const ConvReluPoolKernel& kernel) {
  const auto images = random_floats(kImages * 11 * 45, 1), weight = random_floats(6 * 9, 2);
  const auto bias = random_floats(6, 3), gradient = random_floats(kPooled, 4);
  Outcome outcome{std::vector<float>(kPooled), std::vector<float>(6 * 10),
      std::vector<std::uint8_t>(kWindows * kCodeUnit)};
  run(kernel,
      {kShape, kCodeUnit, Element::kFloat, Element::kFloat, kImages, images.data(), weight.data(),
          bias.data(), outcome.pooled.data(), outcome.codes.data(), nullptr},
      gradient.data(), outcome.sums.data());
  return outcome;
}

// Builds differ only in how they round: fused multiply-adds, and the order of the last sum.
TEST(ConvReluPoolKernel, AllBuildsAgree) {
  const Outcome plain = outcome_of(conv_relu_pool_plain());
  for (const auto* kernel : conv_relu_pool_kernels()) {
    const Outcome other = outcome_of(*kernel);
    EXPECT_EQ(other.codes, plain.codes) << kernel->name;
    for (std::size_t at = 0; at < plain.pooled.size(); ++at) {
      ASSERT_NEAR(other.pooled[at], plain.pooled[at], 1e-5) << kernel->name << at;
    }
    for (std::size_t at = 0; at < plain.sums.size(); ++at) {
      ASSERT_NEAR(other.sums[at], plain.sums[at], 2e-4) << kernel->name << at;
    }
  }
}

// With a guard behind what is written.
void run_inside(const ConvReluPoolKernel& kernel, const ConvReluPoolShape& shape,
    Element image_element, Element pooled_element) {
  const auto bytes = [](Element element) { return element == Element::kFloat ? 4U : 2U; };
  const auto pixels = static_cast<std::size_t>(shape.height * shape.width);
  const auto windows = static_cast<std::size_t>((shape.height / 2) * (shape.width / 2));
  const auto channels = static_cast<std::size_t>(shape.channels);
  constexpr std::size_t kStride = kCodeUnit;
  const std::vector<std::uint8_t> images(pixels * bytes(image_element));
  const std::vector<float> weight(channels * 9, 1), bias(channels, 1);
  const std::size_t pooled_bytes = channels * windows * bytes(pooled_element);
  std::vector<std::uint8_t> pooled(pooled_bytes + 1, 77), codes(windows * kStride + 1, 77);
  std::vector<float> sums(channels * 10 + 1, 77);
  const std::vector<std::uint8_t> gradient(pooled_bytes);
  run(kernel,
      {shape, kCodeUnit, image_element, pooled_element, 1, images.data(), weight.data(),
          bias.data(), pooled.data(), codes.data(), nullptr},
      gradient.data(), sums.data());
  EXPECT_EQ(pooled.back(), 77);
  EXPECT_EQ(codes.back(), 77);
  EXPECT_EQ(sums.back(), 77);
  for (std::size_t window = 0; window < windows; ++window)
    for (std::size_t channel = 0; channel < channels; ++channel)
      EXPECT_LE(codes[window * kStride + channel], kDead);
}

TEST(ConvReluPoolKernel, StaysInsideItsArrays) {
  for (const auto* kernel : conv_relu_pool_kernels()) {
    for (const std::int64_t height : {2, 3, 8}) {
      for (const std::int64_t width : {2, 3, 7, 28, 32, 33, 34, 70}) {
        for (const auto image : {Element::kFloat, Element::kBFloat16}) {
          run_inside(*kernel, {height, width, 3}, image, Element::kFloat);
          run_inside(*kernel, {height, width, 3}, image, Element::kBFloat16);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::nn::fused
