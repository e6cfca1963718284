#include "lockstep/nn/fused/batch_norm_relu.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace lockstep::nn::fused {
namespace {

inline constexpr double kEps = 1e-5, kMomentum = 0.1;

struct NormShape {
  std::int64_t images, channels, height, width;
};

inline std::ostream& operator<<(std::ostream& out, const NormShape& shape) {
  return out << shape.images << "x" << shape.channels << "x" << shape.height << "x" << shape.width;
}

inline at::Tensor layer_values(const NormShape& shape, at::ScalarType type = at::kFloat) {
  return at::randn({shape.images, shape.channels, shape.height, shape.width})
      .to(type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

enum class Behind { kNothing, kRelu, kSilu, kHardswish, kAdditionAndRelu };
inline constexpr Behind kAnythingBehind[] = {
    Behind::kNothing, Behind::kRelu, Behind::kSilu, Behind::kHardswish, Behind::kAdditionAndRelu};

inline Activation activation_of(Behind behind) {
  constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kSilu,
      Activation::kHardswish, Activation::kRelu};
  return kActivations[static_cast<int>(behind)];
}

inline std::ostream& operator<<(std::ostream& out, Behind behind) {
  constexpr const char* kNames[] = {"nothing", "ReLU", "SiLU", "hardswish", "an addition and ReLU"};
  return out << kNames[static_cast<int>(behind)];
}

/// The input of a layer and of its backward pass. Values have a mean far from zero.
struct NormGiven {
  Activation activation;
  at::Tensor input, addend, gradient, weight, bias;

  NormGiven(const NormShape& shape, Behind behind, at::ScalarType type = at::kFloat)
      : activation(activation_of(behind)),
        input((layer_values(shape) * 2 + 5).to(type)),
        addend(behind == Behind::kAdditionAndRelu ? layer_values(shape, type) : at::Tensor()),
        gradient(layer_values(shape, type)),
        weight(at::randn({shape.channels})),
        bias(at::randn({shape.channels})) {}
};

inline at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone().set_requires_grad(true) : at::Tensor();
}

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
  const auto output = fused_batch_norm(kernel, arguments, {given.activation, addend});
  output.backward(given.gradient);
  return {output.detach(), input.grad(), gradient_of(addend), weight.grad(), bias.grad(),
      running_mean, running_var};
}

at::Tensor activated(const at::Tensor& maps, Activation activation) {
  return activate(maps.clone(), activation);
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
  const auto result = activated(sum, given.activation);
  if (given.activation == Activation::kRelu)
    sum.backward(gradient * (output > 0));
  else
    result.backward(gradient);
  return {result.detach(), input.grad(), gradient_of(addend), weight.grad(), bias.grad(),
      running_mean, running_var};
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

class BatchNormShapes : public ::testing::TestWithParam<NormShape> {};

TEST_P(BatchNormShapes, AgreeWithDoublePrecision) {
  torch::manual_seed(1);
  for (const auto* kernel : batch_norm_kernels())
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
  const auto kernels = batch_norm_kernels();
  for (std::size_t round = 0; round < 2000; ++round) {
    const NormShape shape{drawn(2, 9), drawn(1, 70), drawn(1, 9), drawn(1, 9)};
    const auto last = static_cast<int>(std::size(kAnythingBehind)) - 1;
    expect_agrees(*kernels[round % kernels.size()], shape, kAnythingBehind[drawn(0, last)]);
    if (::testing::Test::HasFailure()) return;
  }
}

// A value of bf16 has 2^-9 of rounding in each of the values that are stored.
TEST(BatchNormRelu, RoundsOnlyResultsInBf16) {
  torch::manual_seed(4);
  for (const auto* kernel : batch_norm_kernels()) {
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
    const NormOutcome one = outcome_of(*batch_norm_kernels().back(), given);
    at::set_num_threads(3);
    const NormOutcome three = outcome_of(*batch_norm_kernels().back(), given);
    EXPECT_TRUE(has_same_bits(one, three)) << shape;
  }
  at::set_num_threads(before);
}

// Deviations of 1e-3 from a mean of 1000: a float's squares would lose all of it.
TEST(BatchNormRelu, KeepsSmallDeviationsFromALargeMean) {
  torch::manual_seed(6);
  NormGiven given({16, 8, 16, 16}, Behind::kRelu);
  given.input = 1000 + layer_values({16, 8, 16, 16}) * 0.01;
  for (const auto* kernel : batch_norm_kernels()) {
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
  for (const auto* kernel : batch_norm_kernels()) {
    const NormOutcome result = outcome_of(*kernel, given);
    EXPECT_TRUE(result.output.isnan()[0][1][2][3].item<bool>());
    EXPECT_EQ(result.output.isnan().sum().item<std::int64_t>(), 1);
    EXPECT_EQ(result.addend[0][1][2][3].item<float>(), given.gradient[0][1][2][3].item<float>());
  }
}

// Far from zero e^-x is no float any more, and slopes are 0 or 1.
TEST(BatchNormRelu, ActivatesValuesOfAnySize) {
  torch::manual_seed(17);
  for (const auto behind : {Behind::kSilu, Behind::kHardswish}) {
    NormGiven given({4, 19, 5, 5}, behind);
    given.weight = at::linspace(-300, 300, 19);
    for (const auto* kernel : batch_norm_kernels()) {
      const NormOutcome result = outcome_of(*kernel, given);
      const NormOutcome exact = reference(given, result.output);
      EXPECT_TRUE(at::allclose(result.output.to(at::kDouble), exact.output, 1e-5, 1e-4)) << behind;
      EXPECT_TRUE(at::allclose(result.bias.to(at::kDouble), exact.bias, 1e-5, 1e-4)) << behind;
    }
    given.weight = at::full({19}, 5e37);
    for (const auto* kernel : batch_norm_kernels())  // neither falls below -0.4
      EXPECT_GE(outcome_of(*kernel, given).output.min().item<float>(), -0.4) << behind;
  }
}

// Batch norm of LibTorch's layers in the scope of our kernels.

/// A layer of LibTorch, and the same operators one after the other.
struct NormLayer {
  torch::nn::BatchNorm2d norm;

  explicit NormLayer(std::int64_t channels, std::optional<double> momentum = kMomentum)
      : norm(torch::nn::BatchNorm2dOptions(channels).momentum(momentum)) {}

  at::Tensor plain(const at::Tensor& input, const at::Tensor& addend) {
    auto maps = norm->forward(input);
    return (addend.defined() ? maps + addend : maps).relu();
  }
};

TEST(BatchNormLayer, UpdatesALayerAsItsForwardDoes) {
  const KernelScope own(Kernels::kOwn);
  for (const auto momentum : {std::optional(0.3), std::optional<double>()}) {
    torch::manual_seed(8);
    NormLayer fused(6, momentum), plain(6, momentum);
    for (int step = 0; step < 3; ++step) {
      const NormGiven given({4, 6, 5, 5}, Behind::kAdditionAndRelu);
      const auto ours = batch_norm_relu(fused.norm, given.input, given.addend);
      EXPECT_NE(ours.grad_fn()->name().find("FusedBatchNorm"), std::string::npos);
      EXPECT_TRUE(at::allclose(ours, plain.plain(given.input, given.addend), 1e-5, 1e-5));
    }
    EXPECT_EQ(fused.norm->num_batches_tracked.item<std::int64_t>(), 3);
    EXPECT_TRUE(at::allclose(fused.norm->running_mean, plain.norm->running_mean, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(fused.norm->running_var, plain.norm->running_var, 1e-5, 1e-6));
  }
}

// Evaluation, rows of channels, and doubles are LibTorch's, bit for bit.
TEST(BatchNormLayer, LeavesTheRestToLibTorch) {
  const KernelScope own(Kernels::kOwn);
  torch::manual_seed(9);
  const NormGiven given({4, 6, 5, 5}, Behind::kAdditionAndRelu);
  NormLayer layer(6);
  layer.norm->eval();
  EXPECT_TRUE(batch_norm_relu(layer.norm, given.input, given.addend)
                  .equal(layer.plain(given.input, given.addend)));
  layer.norm->train();
  const auto rows = given.input.contiguous(), addend = given.addend.contiguous();
  EXPECT_TRUE(batch_norm_relu(layer.norm, rows, addend).equal(layer.plain(rows, addend)));
  layer.norm->to(at::kDouble);
  const auto wide = given.input.to(at::kDouble);
  EXPECT_TRUE(batch_norm_relu(layer.norm, wide).equal(layer.plain(wide, {})));
}

TEST(BatchNormLayer, TakesAWeightThatIsANegatedView) {
  const KernelScope own(Kernels::kOwn);
  torch::manual_seed(9);
  const NormGiven given({4, 6, 5, 5}, Behind::kAdditionAndRelu);
  NormLayer view(6), values(6);
  values.norm->weight = at::randn({6});
  view.norm->weight = at::_neg_view(-values.norm->weight);
  EXPECT_TRUE(at::allclose(batch_norm_relu(view.norm, given.input, given.addend),
      batch_norm_relu(values.norm, given.input, given.addend), 1e-5, 1e-5));
}

TEST(BatchNormLayer, DoesNotReachOtherLayers) {
  const KernelScope own(Kernels::kOwn);
  torch::manual_seed(10);
  NormLayer fused(3), other(3);
  const auto input = layer_values({2, 3, 4, 4});
  batch_norm_relu(fused.norm, input);
  EXPECT_LT(other.norm->forward(input).min().item<float>(), 0) << "without ReLU";
}

TEST(BatchNormLayer, TakesLayersWithoutReluToo) {
  torch::manual_seed(13);
  const NormGiven given({4, 6, 5, 5}, Behind::kNothing);
  NormLayer layer(6);
  const auto name = [&] { return layer.norm->forward(given.input).grad_fn()->name(); };
  EXPECT_EQ(name().find("Fused"), std::string::npos);
  const KernelScope own(Kernels::kOwn);
  EXPECT_NE(name().find("Fused"), std::string::npos);
}

TEST(BatchNormLayer, IsLibTorchsUnlessAskedFor) {
  torch::manual_seed(12);
  const NormGiven given({4, 6, 5, 5}, Behind::kAdditionAndRelu);
  NormLayer layer(6);
  const KernelScope own(Kernels::kOwn);
  const KernelScope libtorch(Kernels::kLibTorch);
  EXPECT_TRUE(batch_norm_relu(layer.norm, given.input, given.addend)
                  .equal(layer.plain(given.input, given.addend)));
}

/// The gradients of a loss that has those of another one in it.
std::vector<at::Tensor> second_gradients(
    Kernels who, const NormGiven& given, at::ScalarType type = at::kFloat) {
  const KernelScope scope(who);
  NormLayer layer(given.input.size(1));
  layer.norm->weight.set_data(given.weight.clone());
  layer.norm->bias.set_data(given.bias.clone());
  const auto input = leaf(given.input.to(type)), addend = leaf(given.addend);
  auto [maps, is_activated] =
      batch_norm_before({given.activation, addend}, [&] { return layer.norm->forward(input); });
  if (!is_activated && addend.defined()) maps = maps + addend;
  const auto output = is_activated ? maps : activated(maps, given.activation);
  std::vector<at::Tensor> wanted{input, layer.norm->weight, layer.norm->bias};
  if (addend.defined()) wanted.push_back(addend);
  const auto loss = (output * given.gradient).pow(3).to(at::kFloat).mean();
  at::Tensor penalty = at::zeros({});
  for (const auto& gradient : torch::autograd::grad({loss}, wanted, {}, true, true))
    penalty = penalty + gradient.to(at::kFloat).square().sum();
  return torch::autograd::grad({penalty}, wanted);
}

TEST(BatchNormLayer, HasSecondDerivativesAsLibTorch) {
  for (const Behind behind : kAnythingBehind) {
    torch::manual_seed(11);
    const NormGiven given({4, 3, 5, 5}, behind);
    const auto ours = second_gradients(Kernels::kOwn, given);
    const auto theirs = second_gradients(Kernels::kLibTorch, given);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const double size = theirs[i].abs().max().item<double>();
      EXPECT_GT(size, 0);
      EXPECT_TRUE(ours[i].allclose(theirs[i], 1e-3, 1e-4 * size)) << behind << " " << i;
    }
  }
}

TEST(BatchNormLayer, HasSecondDerivativesInBf16) {
  torch::manual_seed(11);
  const NormGiven given({4, 3, 5, 5}, Behind::kAdditionAndRelu, at::kBFloat16);
  for (const auto& gradient : second_gradients(Kernels::kOwn, given, at::kBFloat16))
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
}

// One call is LibTorch's because its input lies otherwise, or in evaluation; the next is ours.
TEST(BatchNormLayer, LeavesGraphsOfEarlierCallsUsable) {
  const auto gradient = [](Kernels who, bool evaluates_first) {
    const KernelScope scope(who);
    torch::manual_seed(14);
    NormLayer layer(3);
    const auto rows = at::randn({2, 3, 4, 4});
    if (evaluates_first) layer.norm->eval();
    const auto first = layer.norm->forward(rows);
    layer.norm->train();
    const auto second =
        batch_norm_relu(layer.norm, rows.contiguous(at::MemoryFormat::ChannelsLast));
    (first.square().sum() + second.pow(3).sum()).backward();
    return layer.norm->weight.grad();
  };
  for (const bool evaluates_first : {false, true})
    EXPECT_TRUE(gradient(Kernels::kOwn, evaluates_first)
                    .allclose(gradient(Kernels::kLibTorch, evaluates_first), 1e-4, 1e-4));
}

// In forward mode a tensor has a tangent, of which only LibTorch's operators know.
TEST(BatchNormLayer, LeavesForwardModeToLibTorch) {
  torch::manual_seed(15);
  NormLayer layer(3);
  const auto level = static_cast<std::int64_t>(torch::autograd::forward_ad::enter_dual_level());
  const auto input = at::_make_dual(layer_values({2, 3, 4, 4}), layer_values({2, 3, 4, 4}), level);
  const auto tangent = [&](Kernels who) {
    const KernelScope scope(who);
    return std::get<1>(at::_unpack_dual(layer.norm->forward(input), level)).clone();
  };
  EXPECT_TRUE(tangent(Kernels::kOwn).allclose(tangent(Kernels::kLibTorch)));
  torch::autograd::forward_ad::exit_dual_level(static_cast<std::uint64_t>(level));
}

}  // namespace
}  // namespace lockstep::nn::fused
