// Batch norm of LibTorch's layers in the scope of our kernels.

#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "tests/nn/batch_norm_given.h"
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "lockstep/nn/fused/batch_norm_relu.h"

namespace lockstep::nn::fused {
namespace {

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
  const auto output =
      given.rectifies ? batch_norm_relu(layer.norm, input, addend) : layer.norm->forward(input);
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
