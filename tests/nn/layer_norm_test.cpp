// Layer norm, and layer scale with a residual: what LibTorch computes in double precision.

#include "lockstep/nn/fused/layer_norm.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/nn/conv/reference.h"
#include "tests/nn/kernel_checks.h"
#include <ATen/ops/layer_norm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/autocast.h"
#include "lockstep/nn/fused/layer_scale.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using conv::between;

constexpr double kOfVariance = 1e-5;

// Of an input, a weight, and a bias or none.
LayerNormCall norm_call(const Tensors& all) {
  return {.input = all[0],
      .weight = all[1],
      .bias = all.size() > 2 ? all[2] : Tensor(),
      .epsilon = kOfVariance};
}

Function layer_norm_by(const LayerNormKernel& kernel) {
  return [&](const Tensors& all) { return own_layer_norm(kernel, norm_call(all)); };
}

Tensor layer_norm_of_libtorch(const Tensors& all) {
  return at::layer_norm(all[0], all[1].sizes(), all[1],
      all.size() > 2 ? std::optional(all[2]) : std::nullopt, kOfVariance);
}

const LayerNormKernel& fastest_norm() { return *layer_norm_kernels().back(); }

// The input alone is in bf16, as under autocast.
Function with_short_input(const Function& function) {
  return [=](const Tensors& all) {
    Tensors shorter = all;
    shorter[0] = all[0].to(at::kBFloat16);
    const Tensor result = function(shorter);
    EXPECT_EQ(result.scalar_type(), at::kBFloat16);
    return result.to(at::kFloat);
  };
}

// Groups of rows that are not full, and parts of them of which sums are added.
TEST(LayerNorm, AgreesWithDoublePrecisionOnDrawnShapes) {
  with_each<LayerNormKernel>(
      layer_norm_kernels(), [](const LayerNormKernel& kernel, std::mt19937& generator) {
        const std::int64_t width = between(generator, 4, 200), rows = between(generator, 1, 150);
        const Tensor input = at::randn({2, rows, width}).to(at::kBFloat16).to(at::kFloat);
        SCOPED_TRACE(::testing::Message() << input.sizes());
        Tensors all{input, at::randn({width})};
        expect_agrees(layer_norm_by(kernel), layer_norm_of_libtorch, all);
        all.push_back(at::randn({width}));
        expect_agrees(layer_norm_by(kernel), layer_norm_of_libtorch, all);
        expect_agrees(with_short_input(layer_norm_by(kernel)), layer_norm_of_libtorch, all,
            at::kFloat, kOfBFloat16);
      });
}

TEST(LayerNorm, HasTheGradientsOfItsDifferences) {
  torch::manual_seed(5);
  for (const LayerNormKernel* const kernel : layer_norm_kernels())
    expect_numerical_gradients(
        layer_norm_by(*kernel), {at::randn({70, 37}), at::randn({37}), at::randn({37})});
}

// Squares of the values themselves would lose the deviations.
TEST(LayerNorm, TakesValuesFarFromZeroAndRowsOfOneValue) {
  torch::manual_seed(6);
  for (const LayerNormKernel* const kernel : layer_norm_kernels()) {
    expect_agrees(layer_norm_by(*kernel), layer_norm_of_libtorch,
        {at::randn({20, 100}) + 3000, at::randn({100}), at::randn({100})}, at::kFloat, 2e-3);
    const Tensor same = at::full({1, 40}, 0.3F);
    expect_agrees(
        layer_norm_by(*kernel), layer_norm_of_libtorch, {same, at::ones({40})}, at::kFloat, 1e-4);
  }
}

TEST(LayerNorm, ReadsRowsThatAreNotInOnePieceAndIsDifferentiableTwice) {
  const Function own = layer_norm_by(fastest_norm());
  const auto transposed = [](const Function& function) {
    return [=](const Tensors& all) { return function({all[0].t(), all[1], all[2]}); };
  };
  expect_agrees(transposed(own), transposed(layer_norm_of_libtorch),
      {at::randn({30, 20}), at::randn({30}), at::randn({30})});
  expect_same_twice(
      own, layer_norm_of_libtorch, {at::randn({5, 7}), at::randn({7}), at::randn({7})});
  expect_same_twice(own, layer_norm_of_libtorch, {at::randn({5, 7}), at::randn({7})});
}

TEST(LayerNorm, HasTheSameBitsForAnyNumberOfThreadsAndOfOneInputAlone) {
  const Tensors all{at::randn({501, 300}), at::randn({300}), at::randn({300})};
  expect_same_bits_for_any_threads(layer_norm_by(fastest_norm()), all);
  expect_same_of_each_alone(layer_norm_by(fastest_norm()), all);
}

// Only in its row, and backward in the sums over rows.
TEST(LayerNorm, PassesOnWhatIsNoNumber) {
  for (const LayerNormKernel* const kernel : layer_norm_kernels()) {
    const Tensors all = leaves({at::randn({9, 20}), at::randn({20}), at::randn({20})}, at::kFloat);
    all[0].data()[4][3] = std::numeric_limits<float>::quiet_NaN();
    const Tensor output = layer_norm_by(*kernel)(all);
    const auto gradients = torch::autograd::grad({output.sum()}, all);
    for (const Tensor& rows : {output, gradients[0]}) {
      EXPECT_TRUE(rows[4].isnan().all().item<bool>());
      EXPECT_EQ(rows.isnan().sum().item<std::int64_t>(), 20);
    }
    EXPECT_TRUE(gradients[1].isnan().all().item<bool>());
    EXPECT_FALSE(gradients[2].isnan().any().item<bool>());
  }
}

bool is_own_norm(const Tensor& input, const Tensor& weight, const Tensor& bias = {}) {
  return is_layer_norm_own(
      {.input = input, .weight = weight, .bias = bias, .epsilon = kOfVariance});
}

TEST(LayerNorm, IsCalledWithinAScopeAndOtherTypesAreLibTorchs) {
  EXPECT_FALSE(is_own_norm(at::randn({4, 6}, at::kDouble), at::randn({6}, at::kDouble)));
  EXPECT_FALSE(is_own_norm(at::randn({4, 6}, at::kBFloat16), at::randn({6}, at::kBFloat16)));
  EXPECT_FALSE(is_own_norm(at::randn({4, 6}), at::randn({4, 6})));
  EXPECT_FALSE(is_own_norm(at::randn({4, 6}), at::randn({6}), at::randn({1})));
  EXPECT_FALSE(is_own_norm(at::randn({0, 6}), at::randn({6})));
  const Tensors all = leaves({at::randn({4, 6}), at::randn({6}), at::randn({6})}, at::kFloat);
  const auto node = [&](Kernels who) {
    const KernelScope scope(who);
    return layer_norm_of_libtorch(all).grad_fn()->name();
  };
  EXPECT_NE(node(Kernels::kAuto).find("OwnLayerNorm"), std::string::npos);
  EXPECT_EQ(node(Kernels::kLibTorch).find("OwnLayerNorm"), std::string::npos);
  const KernelScope scope(Kernels::kOwn);
  const std::vector<std::int64_t> both{4, 6};
  EXPECT_EQ(at::layer_norm(all[0], both, at::ones(both)).grad_fn()->name().find("OwnLayerNorm"),
      std::string::npos)
      << "over two dimensions";
}

TEST(LayerNorm, HasLibTorchsTypesUnderAutocast) {
  const Tensors all = leaves({at::randn({4, 6}), at::randn({6}), at::randn({6})}, at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensor input = all[0].detach().to(type).requires_grad_();
    const auto results = [&](Kernels who) {
      const KernelScope scope(who);
      const Autocast autocast(at::kCPU, at::kBFloat16);
      const Tensor output = layer_norm_of_libtorch({input, all[1], all[2]});
      EXPECT_EQ(
          output.grad_fn()->name().find("OwnLayerNorm") != std::string::npos, who == Kernels::kOwn);
      Tensors found = torch::autograd::grad({output.square().sum()}, {input, all[1], all[2]});
      found.push_back(output);
      return found;
    };
    const Tensors own = results(Kernels::kOwn), wanted = results(Kernels::kLibTorch);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(own[i].scalar_type(), wanted[i].scalar_type()) << i;
      expect_close(own[i], wanted[i].to(at::kDouble), type == at::kFloat ? 1e-5 : 0.05);
    }
  }
}

Function layer_scale_by(const LayerScaleKernel& kernel, bool is_of_maps = false) {
  return [&kernel, is_of_maps](const Tensors& all) {
    return own_layer_scale(
        kernel, {.input = all[0], .scale = all[1], .residual = all[2], .is_of_maps = is_of_maps});
  };
}

Tensor layer_scale_of_libtorch(const Tensors& all) { return all[0] * all[1] + all[2]; }

const LayerScaleKernel& fastest_scale() { return *layer_scale_kernels().back(); }

TEST(LayerScale, AgreesWithDoublePrecisionOnDrawnShapes) {
  with_each<LayerScaleKernel>(
      layer_scale_kernels(), [](const LayerScaleKernel& kernel, std::mt19937& generator) {
        const std::int64_t width = between(generator, 1, 200), rows = between(generator, 1, 300);
        const Tensor branch = at::randn({rows, width}).to(at::kBFloat16).to(at::kFloat);
        const Tensors all{branch, at::randn({width}), at::randn(branch.sizes())};
        SCOPED_TRACE(::testing::Message() << branch.sizes());
        expect_agrees(layer_scale_by(kernel), layer_scale_of_libtorch, all);
        const auto of_short = [&](const Tensors& given) {
          return layer_scale_by(kernel)({given[0].to(at::kBFloat16), given[1], given[2]});
        };
        expect_agrees(of_short, layer_scale_of_libtorch, all, at::kFloat, kOfBFloat16);
      });
}

// Channels last in memory; as the program has it, the scale is spread over maps.
TEST(LayerScale, OfMapsScalesChannels) {
  const auto last = [](const Function& function) {
    return [=](const Tensors& all) {
      constexpr auto kLast = at::MemoryFormat::ChannelsLast;
      return function({all[0].contiguous(kLast), all[1], all[2].contiguous(kLast)});
    };
  };
  const auto of_libtorch = [](const Tensors& all) {
    return all[0] * all[1].view({1, -1, 1, 1}) + all[2];
  };
  const Tensor branch = at::randn({2, 20, 9, 11});
  const Tensors all{branch, at::randn({20}), at::randn(branch.sizes())};
  const Function own = last(layer_scale_by(fastest_scale(), true));
  expect_agrees(own, of_libtorch, all);
  expect_same_twice(own, of_libtorch, all);
}

TEST(LayerScale, HasTheGradientsOfItsDifferencesAndIsDifferentiableTwice) {
  const Tensors all{at::randn({70, 37}), at::randn({37}), at::randn({70, 37})};
  expect_numerical_gradients(layer_scale_by(fastest_scale()), all);
  expect_same_twice(layer_scale_by(fastest_scale()), layer_scale_of_libtorch, all);
}

TEST(LayerScale, HasTheSameBitsForAnyNumberOfThreadsAndOfOneInputAlone) {
  const Tensors all{at::randn({501, 100}), at::randn({100}), at::randn({501, 100})};
  expect_same_bits_for_any_threads(layer_scale_by(fastest_scale()), all);
  expect_same_of_each_alone(layer_scale_by(fastest_scale()), all);
}

TEST(LayerScale, LeavesOtherOrdersOfMemoryAndTypes) {
  const auto is_own = [](const Tensor& input, const Tensor& residual, bool is_of_maps) {
    const Tensor scale = at::ones({5});
    return is_layer_scale_own(
        {.input = input, .scale = scale, .residual = residual, .is_of_maps = is_of_maps});
  };
  const Tensor maps = at::randn({2, 5, 3, 4}),
               last = maps.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(is_own(last, last, true));
  EXPECT_FALSE(is_own(maps, maps, true)) << "channels are not last in memory";
  EXPECT_FALSE(is_own(last, maps, true));
  EXPECT_FALSE(is_own(last, last.slice(3, 0, 1), true)) << "the residual is spread";
  EXPECT_FALSE(is_own(last.to(at::kDouble), last.to(at::kDouble), true));
  EXPECT_FALSE(is_own(last, last.to(at::kBFloat16), true));
  const Tensor rows = at::randn({4, 5});
  EXPECT_TRUE(is_own(rows, rows, false));
  EXPECT_FALSE(is_own(rows.t(), rows.t(), false));
  EXPECT_FALSE(is_own(rows, rows, true));
}

}  // namespace
}  // namespace lockstep::nn::fused
