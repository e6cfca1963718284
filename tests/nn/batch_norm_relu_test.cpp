#include "lockstep/nn/fused/batch_norm_relu.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/nn/batch_norm_given.h"
#include <ATen/Parallel.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/zeros.h>

namespace lockstep::nn::fused {
namespace {

struct NormOutcome {
  at::Tensor output, input, addend, weight, bias;  // after the first, gradients
  at::Tensor running_mean, running_var;

  std::vector<at::Tensor> all() const {
    return {output, input, addend, weight, bias, running_mean, running_var};
  }
};

bool has_same_bits(const NormOutcome& a, const NormOutcome& b) {
  const auto left = a.all(), right = b.all();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].defined() && !left[i].equal(right[i])) return false;
  }
  return true;
}

at::Tensor gradient_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.grad() : at::Tensor();
}

NormOutcome outcome_of(const BatchNormKernel& kernel, const NormGiven& given) {
  const auto input = leaf(given.input), addend = leaf(given.addend);
  const auto weight = leaf(given.weight), bias = leaf(given.bias);
  auto running_mean = at::zeros_like(given.weight), running_var = at::ones_like(given.weight);
  const BatchNormArguments arguments{
      input, weight, bias, running_mean, running_var, kMomentum, kEps};
  EXPECT_TRUE(is_batch_norm_fused(arguments, addend));
  const auto output = fused_batch_norm(kernel, arguments, {given.rectifies, addend});
  output.backward(given.gradient);
  return {output.detach(), input.grad(), gradient_of(addend), weight.grad(), bias.grad(),
      running_mean, running_var};
}

/// Computes in fp64, by LibTorch. Which gradients pass ReLU is taken from `output`: near zero, the
/// sign is rounding's.
NormOutcome reference(const NormGiven& given, const at::Tensor& output) {
  const auto exact = [](const at::Tensor& tensor) {
    return tensor.defined() ? leaf(tensor.to(at::kDouble)) : at::Tensor();
  };
  const auto input = exact(given.input), addend = exact(given.addend);
  const auto weight = exact(given.weight), bias = exact(given.bias);
  auto running_mean = at::zeros_like(weight).detach(), running_var = at::ones_like(weight).detach();
  auto sum =
      at::batch_norm(input, weight, bias, running_mean, running_var, true, kMomentum, kEps, false);
  if (addend.defined()) sum = sum + addend;
  const auto gradient = given.gradient.to(at::kDouble);
  sum.backward(given.rectifies ? gradient * (output > 0) : gradient);
  return {given.rectifies ? sum.detach().relu() : sum.detach(), input.grad(), gradient_of(addend),
      weight.grad(), bias.grad(), running_mean, running_var};
}

void expect_near(const NormOutcome& result, const NormOutcome& exact, double tolerance) {
  const char* const names[] = {"output", "gradient of the input", "gradient of the addend",
      "gradient of the weight", "gradient of the bias", "running mean", "running variance"};
  const auto results = result.all(), expected = exact.all();
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].defined(), expected[i].defined()) << names[i];
    if (!results[i].defined()) continue;
    const double size = std::max(1.0, expected[i].abs().max().item<double>());
    const double error = (results[i].to(at::kDouble) - expected[i]).abs().max().item<double>();
    EXPECT_LE(error, tolerance * size) << names[i];
  }
}

// Of two values a channel, almost all of the gradient cancels out: what is left has the errors of
// what it is made of.
double amplification(const NormGiven& given) {
  const auto deviation = given.input.to(at::kDouble).var({0, 2, 3}, false).add(kEps).sqrt();
  return std::max(1.0, (given.weight.to(at::kDouble) / deviation).abs().max().item<double>());
}

void expect_agrees(const BatchNormKernel& kernel, const NormShape& shape, Behind behind) {
  SCOPED_TRACE(::testing::Message() << kernel.name << ": " << shape << ", then " << behind);
  const NormGiven given(shape, behind);
  const NormOutcome result = outcome_of(kernel, given);
  const NormOutcome exact = reference(given, result.output);
  expect_near(result, exact, 1e-5 * amplification(given));
}

std::vector<const BatchNormKernel*> all_kernels() {
  const BatchNormKernels found = batch_norm_kernels();
  return {found.kernels, found.kernels + found.count};
}

class BatchNormShapes : public ::testing::TestWithParam<NormShape> {};

TEST_P(BatchNormShapes, AgreeWithDoublePrecision) {
  torch::manual_seed(1);
  for (const auto* kernel : all_kernels())
    for (const auto behind : kAnythingBehind) expect_agrees(*kernel, GetParam(), behind);
}

// Images, channels, height, width; the last ones have many parts and blocks of rows.
INSTANTIATE_TEST_SUITE_P(BatchNormRelu, BatchNormShapes,
    ::testing::Values(NormShape{2, 1, 1, 1}, NormShape{1, 3, 1, 2}, NormShape{2, 17, 1, 1},
        NormShape{3, 33, 5, 7}, NormShape{64, 64, 8, 8}, NormShape{5, 2048, 3, 3},
        NormShape{32, 16, 28, 28}, NormShape{8, 256, 28, 28}));

TEST(BatchNormRelu, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(2);
  std::mt19937 generator(3);
  const auto drawn = [&](int least, int most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator);
  };
  const auto kernels = all_kernels();
  for (std::size_t round = 0; round < 2000; ++round) {
    const NormShape shape{drawn(2, 9), drawn(1, 70), drawn(1, 9), drawn(1, 9)};
    expect_agrees(*kernels[round % kernels.size()], shape, kAnythingBehind[drawn(0, 2)]);
    if (::testing::Test::HasFailure()) return;
  }
}

// A value of bf16 has 2^-9 of rounding in each of the values that are stored.
TEST(BatchNormRelu, RoundsOnlyResultsInBf16) {
  torch::manual_seed(4);
  for (const auto* kernel : all_kernels()) {
    for (const auto behind : kAnythingBehind) {
      const NormGiven given({8, 33, 9, 9}, behind, at::kBFloat16);
      const NormOutcome result = outcome_of(*kernel, given);
      const NormOutcome exact = reference(given, result.output);
      EXPECT_EQ(result.output.scalar_type(), at::kBFloat16);
      EXPECT_EQ(result.weight.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(result.output.to(at::kDouble), exact.output, 1.0 / 256, 1e-5));
      EXPECT_TRUE(at::allclose(result.input.to(at::kDouble), exact.input, 1.0 / 256, 1e-5));
      EXPECT_TRUE(at::allclose(result.weight.to(at::kDouble), exact.weight, 1e-4, 1e-4));
      EXPECT_TRUE(at::allclose(result.running_var.to(at::kDouble), exact.running_var, 1e-5, 1e-5));
    }
  }
}

TEST(BatchNormRelu, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const NormShape& shape : {NormShape{3, 5, 3, 3}, NormShape{16, 48, 20, 20}}) {
    torch::manual_seed(5);
    const NormGiven given(shape, Behind::kAdditionAndRelu);
    at::set_num_threads(1);
    const NormOutcome one = outcome_of(*all_kernels().back(), given);
    at::set_num_threads(3);
    const NormOutcome three = outcome_of(*all_kernels().back(), given);
    EXPECT_TRUE(has_same_bits(one, three)) << shape;
  }
  at::set_num_threads(before);
}

// Deviations of 1e-3 from a mean of 1000: a float's squares would lose all of it.
TEST(BatchNormRelu, KeepsSmallDeviationsFromALargeMean) {
  torch::manual_seed(6);
  NormGiven given({16, 8, 16, 16}, Behind::kRelu);
  given.input = 1000 + layer_values({16, 8, 16, 16}) * 0.01;
  for (const auto* kernel : all_kernels()) {
    const NormOutcome result = outcome_of(*kernel, given);
    const NormOutcome exact = reference(given, result.output);
    EXPECT_TRUE(at::allclose(result.running_var.to(at::kDouble), exact.running_var, 1e-6, 0));
    EXPECT_TRUE(at::allclose(result.running_mean.to(at::kDouble), exact.running_mean, 1e-6, 0));
  }
}

TEST(BatchNormRelu, PassesNansOn) {
  torch::manual_seed(7);
  NormGiven given({2, 3, 4, 4}, Behind::kAdditionAndRelu);
  given.addend.index_put_({0, 1, 2, 3}, std::numeric_limits<float>::quiet_NaN());
  for (const auto* kernel : all_kernels()) {
    const NormOutcome result = outcome_of(*kernel, given);
    EXPECT_TRUE(result.output.isnan()[0][1][2][3].item<bool>());
    EXPECT_EQ(result.output.isnan().sum().item<std::int64_t>(), 1);
    EXPECT_EQ(result.addend[0][1][2][3].item<float>(), given.gradient[0][1][2][3].item<float>());
  }
}

}  // namespace
}  // namespace lockstep::nn::fused
