// Batch norm of LibTorch's layers in the scope of our kernels.

#include <gtest/gtest.h>
#include <optional>

#include "tests/nn/batch_norm_given.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "lockstep/core/error.h"
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

TEST(BatchNormLayer, RefusesSecondDerivatives) {
  const KernelScope own(Kernels::kOwn);
  torch::manual_seed(11);
  NormLayer layer(3);
  const auto input = leaf(layer_values({2, 3, 4, 4}));
  const auto output = batch_norm_relu(layer.norm, input);
  EXPECT_THROW(torch::autograd::grad({output.sum()}, {input}, {}, true, true), Error);
}

}  // namespace
}  // namespace lockstep::nn::fused
