// RMSNorm, SwiGLU, rotary positions, attention and cross entropy: what LibTorch computes in double
// precision.

#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "tests/nn/conv/reference.h"
#include "tests/nn/kernel_checks.h"
#include "tests/support/message_of.h"
#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/attention.h"
#include "lockstep/nn/fused/cross_entropy.h"
#include "lockstep/nn/fused/dropout.h"
#include "lockstep/nn/fused/rms_norm.h"
#include "lockstep/nn/fused/rotary.h"
#include "lockstep/nn/fused/swiglu.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn::fused {
namespace {

using at::Tensor;
using conv::between;

constexpr double kEpsilon = 1e-5;

Function rms_norm_by(const RmsNormKernel& kernel) {
  return [&](const Tensors& all) { return own_rms_norm(kernel, all[0], all[1], kEpsilon); };
}

Tensor rms_norm_of_libtorch(const Tensors& all) {
  return at::rms_norm(all[0], all[1].sizes(), all[1], kEpsilon);
}

TEST(RmsNorm, AgreesWithDoublePrecisionOnDrawnShapes) {
  with_each<RmsNormKernel>(
      rms_norm_kernels(), [](const RmsNormKernel& kernel, std::mt19937& generator) {
        const std::int64_t width = between(generator, 4, 200), rows = between(generator, 1, 40);
        expect_agrees(rms_norm_by(kernel), rms_norm_of_libtorch,
            {at::randn({2, rows, width}), at::randn({width})});
      });
}

TEST(RmsNorm, ReadsRowsThatAreNotInOnePieceAndIsDifferentiableTwice) {
  const Function own = rms_norm_by(*rms_norm_kernels().back());
  const auto transposed = [](const Function& function) {
    return [=](const Tensors& all) { return function({all[0].t(), all[1]}); };
  };
  expect_agrees(
      transposed(own), transposed(rms_norm_of_libtorch), {at::randn({30, 20}), at::randn({30})});
  expect_same_twice(own, rms_norm_of_libtorch, {at::randn({5, 7}), at::randn({7})});
}

TEST(RmsNorm, HasTheSameBitsForAnyNumberOfThreads) {
  expect_same_bits_for_any_threads(
      rms_norm_by(*rms_norm_kernels().back()), {at::randn({500, 300}), at::randn({300})});
}

TEST(RmsNorm, HasTheGradientOfOneInputAlone) {
  expect_same_of_each_alone(
      rms_norm_by(*rms_norm_kernels().back()), {at::randn({5, 20}), at::randn({20})});
}

TEST(RmsNorm, IsCalledWithinAScopeAndOtherTypesAreLibTorchs) {
  EXPECT_FALSE(is_rms_norm_own(at::randn({4, 6}, at::kDouble), at::randn({6}, at::kDouble)));
  EXPECT_FALSE(is_rms_norm_own(at::randn({4, 6}), at::randn({4, 6})));
  EXPECT_FALSE(is_rms_norm_own(at::randn({4, 6}), at::ones({})));
  const Tensors inputs = leaves({at::randn({4, 6}), at::randn({6})}, at::kFloat);
  const auto node = [&](Kernels who) {
    const KernelScope scope(who);
    return rms_norm_of_libtorch(inputs).grad_fn()->name();
  };
  EXPECT_NE(node(Kernels::kAuto).find("OwnRmsNorm"), std::string::npos);
  EXPECT_EQ(node(Kernels::kLibTorch).find("OwnRmsNorm"), std::string::npos);
}

Function swiglu_by(const SwigluKernel& kernel) {
  return [&](const Tensors& all) { return own_swiglu(kernel, all[0], all[1]); };
}

Tensor swiglu_of_libtorch(const Tensors& all) { return at::silu(all[0]) * all[1]; }

TEST(Swiglu, AgreesWithDoublePrecision) {
  with_each<SwigluKernel>(
      swiglu_kernels(), [](const SwigluKernel& kernel, std::mt19937& generator) {
        const std::int64_t count = between(generator, 1, 5000);
        for (const auto type : {at::kFloat, at::kBFloat16})
          expect_agrees(swiglu_by(kernel), swiglu_of_libtorch,
              {at::randn({count}) * 3, at::randn({count})}, type);
      });
}

TEST(Swiglu, OfLargeGatesIsFiniteAndIsDifferentiableTwice) {
  const Function own = swiglu_by(*swiglu_kernels().back());
  expect_agrees(own, swiglu_of_libtorch, {at::linspace(-200, 200, 99), at::ones({99})});
  expect_same_twice(own, swiglu_of_libtorch, {at::randn({9}), at::randn({9})});
  expect_same_of_each_alone(own, {at::randn({99}), at::randn({99})});
  EXPECT_FALSE(is_swiglu_own(at::randn({4}), at::randn({4}, at::kBFloat16)));
  EXPECT_FALSE(is_swiglu_own(at::randn({4, 6}).t(), at::randn({6, 4})));
}

Function rotary_by(const RotaryKernel& kernel, const Turns& turns) {
  return [&kernel, &turns](const Tensors& all) { return own_rotary(kernel, all[0], turns); };
}

Function rotary_of_libtorch(const Turns& turns) {
  return [&turns](const Tensors& all) {
    const auto halves = all[0].chunk(2, 3);
    const Tensor cosines = turns.cosines.to(at::kDouble).unsqueeze(1);
    const Tensor sines = turns.sines.to(at::kDouble).unsqueeze(1);
    return at::cat(
        {halves[0] * cosines - halves[1] * sines, halves[1] * cosines + halves[0] * sines}, 3);
  };
}

TEST(Rotary, AgreesWithDoublePrecisionOnDrawnShapes) {
  with_each<RotaryKernel>(
      rotary_kernels(), [](const RotaryKernel& kernel, std::mt19937& generator) {
        const std::int64_t length = between(generator, 1, 20), half = between(generator, 1, 40);
        const Tensor angles = at::randn({length, half}), sines = angles.sin();
        const Turns turns{angles.cos(), sines};
        for (const auto type : {at::kFloat, at::kBFloat16})
          expect_agrees(rotary_by(kernel, turns), rotary_of_libtorch(turns),
              {at::randn({2, length, between(generator, 1, 4), 2 * half})}, type);
      });
}

TEST(Rotary, ReadsHeadsThatAreNotInOnePiece) {
  const Tensor angles = at::randn({6, 8}), sines = angles.sin();
  const Turns turns{angles.cos(), sines};
  const auto transposed = [](const Function& function) {
    return [=](const Tensors& all) { return function({all[0].transpose(1, 2)}); };
  };
  expect_agrees(transposed(rotary_by(*rotary_kernels().back(), turns)),
      transposed(rotary_of_libtorch(turns)), {at::randn({2, 3, 6, 16})});
}

Function attention_by(const AttentionKernels& kernels, bool is_causal = true,
    const AttentionDropout& dropout = {}, const Tensor& mask = {}) {
  return [&kernels, is_causal, dropout, mask](const Tensors& all) {
    return own_attention(kernels, AttentionCall{.queries = all[0],
                                      .keys = all[1],
                                      .values = all[2],
                                      .scale = 0.3,
                                      .is_causal = is_causal,
                                      .dropout = dropout,
                                      .mask = mask});
  };
}

Function attention_of_libtorch(bool is_causal = true) {
  return [is_causal](const Tensors& all) {
    return at::scaled_dot_product_attention(
        all[0], all[1], all[2], {}, 0, is_causal, 0.3, /*enable_gqa=*/true);
  };
}

// The weights of each query begin in a block of 32 of their own.
Function attention_of_operators(
    bool is_causal, const AttentionDropout& dropout, const Tensor& mask = {}) {
  return [=](const Tensors& all) {
    std::optional<Tensor> added;
    if (mask.defined()) added = mask.dtype() == at::kBool ? mask.log() : mask;
    if (mask.defined()) added = added->to(all[0].scalar_type());
    const auto weights = std::get<1>(at::_scaled_dot_product_attention_math(
        all[0], all[1], all[2], added, 0, is_causal, {}, 0.3, /*enable_gqa=*/true));
    const std::int64_t keys = weights.size(3);
    const Tensor ones =
        at::ones({weights.size(0), weights.size(1), weights.size(2), (keys + 31) / 32 * 32});
    const Tensor kept = own_dropout(*dropout_kernels().front(), ones, dropout.p, dropout.seed);
    const Tensor values = all[2].repeat_interleave(all[0].size(1) / all[2].size(1), 1);
    return (weights * kept.narrow(3, 0, keys)).matmul(values);
  };
}

// Several blocks of queries, the last not full; heads of queries that share one of keys.
TEST(Attention, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(12);
  std::mt19937 generator(4);
  const int before = at::get_num_threads();
  for (const AttentionKernels& kernels : attention_kernels()) {
    for (int round = 0; round < 24 && !::testing::Test::HasFailure(); ++round) {
      at::set_num_threads(1 + round % 2);
      const bool is_causal = round % 4 < 2;
      const std::int64_t length = between(generator, 1, 150), size = between(generator, 1, 70);
      const std::int64_t key_heads = between(generator, 1, 3);
      const std::int64_t queries = is_causal ? length : between(generator, 1, 200);
      const Tensor keys = at::randn({2, key_heads, length, size});
      SCOPED_TRACE(::testing::Message() << kernels.softmax.name << ", " << queries << " by "
                                        << keys.sizes() << (is_causal ? ", causal" : ""));
      expect_agrees(attention_by(kernels, is_causal), attention_of_libtorch(is_causal),
          {at::randn({2, key_heads * between(generator, 1, 3), queries, size}), keys,
              at::randn(keys.sizes())});
    }
  }
  at::set_num_threads(before);
}

TEST(Attention, DropsWeightsByTheirPlaces) {
  torch::manual_seed(15);
  std::mt19937 generator(5);
  for (const AttentionKernels& kernels : attention_kernels()) {
    for (int round = 0; round < 16 && !::testing::Test::HasFailure(); ++round) {
      const bool is_causal = round % 4 < 2;
      const std::int64_t length = between(generator, 1, 150);
      const std::int64_t queries = is_causal ? length : between(generator, 1, 200);
      const AttentionDropout dropout{.p = round % 3 == 0 ? 0.9 : 0.2, .seed = generator()};
      const Tensor keys = at::randn({2, 2, length, 9});
      SCOPED_TRACE(::testing::Message() << kernels.softmax.name << ", " << queries << " by "
                                        << length << (is_causal ? ", causal" : ""));
      expect_agrees(attention_by(kernels, is_causal, dropout),
          attention_of_operators(is_causal, dropout),
          {at::randn({2, 2 * between(generator, 1, 3), queries, 9}), keys,
              at::randn(keys.sizes())});
    }
  }
}

// Padding of keys, drawn places, and numbers to add: of all queries, of each, and of each head.
Tensors masks_of(const Tensor& queries, std::int64_t keys) {
  const std::vector<std::int64_t> sizes{queries.size(0), queries.size(1), queries.size(2), keys};
  Tensor padding = at::ones({sizes[0], 1, 1, keys}, at::kBool);
  padding[0].slice(2, (keys + 1) / 2).fill_(false);
  Tensor drawn = at::rand({sizes[0], 1, sizes[2], keys}).gt(0.4);
  drawn.select(3, 0).fill_(true);
  return {padding.expand(sizes), drawn.expand(sizes), at::randn({sizes[2], keys}).expand(sizes),
      at::randn(sizes)};
}

TEST(Attention, AddsAMaskOrHidesWhatItHides) {
  torch::manual_seed(17);
  std::mt19937 generator(6);
  for (const AttentionKernels& kernels : attention_kernels()) {
    for (int round = 0; round < 12 && !::testing::Test::HasFailure(); ++round) {
      const Tensor keys = at::randn({2, 2, between(generator, 1, 150), 9});
      const Tensor queries =
          at::randn({2, 2 * between(generator, 1, 2), between(generator, 1, 200), 9});
      const AttentionDropout dropout{.p = round % 3 == 0 ? 0.3 : 0, .seed = generator()};
      for (const Tensor& mask : masks_of(queries, keys.size(2))) {
        SCOPED_TRACE(::testing::Message() << kernels.softmax.name << ", " << mask.sizes() << ", "
                                          << mask.dtype().name() << ", dropout " << dropout.p);
        expect_agrees(attention_by(kernels, false, dropout, mask),
            attention_of_operators(false, dropout, mask), {queries, keys, at::randn(keys.sizes())});
      }
    }
  }
}

// With the smallest number as a mask, scores are all the same: it has no place for them.
TEST(Attention, OfAQueryThatSeesNoKeyIsZeroAndBehindTheSmallestNumberTheMean) {
  const Tensor heads = at::randn({1, 1, 40, 8});
  const Tensor rows = at::arange(40).ge(20).view({1, 1, 40, 1}).expand({1, 1, 40, 40});
  const Tensor added = at::zeros({1, 1, 40, 40})
                           .masked_fill(rows.logical_not(), std::numeric_limits<float>::lowest());
  for (const AttentionKernels& kernels : attention_kernels()) {
    for (const Tensor& mask : {rows.contiguous(), added}) {
      const Tensors inputs = leaves(Tensors(3, heads), at::kFloat);
      const Tensor outputs = attention_by(kernels, false, {}, mask)(inputs);
      const Tensor wanted = mask.is_floating_point() ? heads.mean(2, true) : at::zeros({1});
      EXPECT_LE((outputs.slice(2, 0, 20) - wanted).abs().max().item<float>(), 1e-6F);
      EXPECT_GT((outputs.slice(2, 20) - wanted).abs().max().item<float>(), 0.1F);
      for (const Tensor& gradient : torch::autograd::grad({outputs.sum()}, inputs))
        EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << kernels.softmax.name;
    }
  }
}

TEST(Attention, TakesTheMasksThatItCanReadAndRefusesThoseThatLibTorchRefuses) {
  const Tensors inputs = leaves(Tensors(3, at::randn({2, 3, 6, 4})), at::kFloat);
  const KernelScope scope(Kernels::kOwn);
  const auto is_own = [&](const Tensor& mask, bool is_causal = false) {
    const Tensor result =
        at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], mask, 0, is_causal);
    return result.grad_fn()->name().find("OwnAttention") != std::string::npos;
  };
  const Tensor seen = at::ones({6, 6}, at::kBool);
  for (const Tensor& mask : {seen, seen.t(), seen.expand({2, 3, 6, 6}), seen.slice(0, 0, 1),
           at::zeros({2, 1, 6, 6}), at::zeros({6, 12}).slice(1, 0, 12, 2)})
    EXPECT_TRUE(is_own(mask)) << mask.sizes();
  EXPECT_FALSE(is_own(at::zeros({6, 6}).requires_grad_())) << "its gradient is LibTorch's";
  EXPECT_FALSE(is_own(seen.slice(1, 0, 1))) << "one number for all keys";
  EXPECT_ANY_THROW(is_own(seen, /*is_causal=*/true));
  EXPECT_ANY_THROW(is_own(at::ones({5, 6}, at::kBool)));
  EXPECT_ANY_THROW(is_own(at::zeros({6, 6}, at::kHalf)));
}

// As GPT-2 has them: all in one tensor [N, T, 3, heads, size].
TEST(Attention, ReadsHeadsThatStandBetweenOthers) {
  const auto of_parts = [](const Function& attention) {
    return [=](const Tensors& all) {
      const auto parts = all[0].transpose(1, 3).unbind(2);
      return attention({parts[0], parts[1], parts[2]}).transpose(1, 2);
    };
  };
  expect_agrees(of_parts(attention_by(attention_kernels().back())),
      of_parts(attention_of_libtorch()), {at::randn({2, 40, 3, 2, 16})});
}

// The same of one tensor [N, T, 3, heads, size].
Function of_packed(const Function& attention) {
  return [=](const Tensors& all) {
    const auto parts = all[0].permute({2, 0, 3, 1, 4}).unbind(0);
    return attention({parts[0], parts[1], parts[2]});
  };
}

Function packed_attention_by(const AttentionKernels& kernels, bool is_causal) {
  return [&kernels, is_causal](const Tensors& all) {
    return own_attention(
        kernels, PackedAttentionCall{.packed = all[0], .scale = 0.3, .is_causal = is_causal});
  };
}

// LibTorch's own kernel is not.
TEST(Attention, IsDifferentiableTwice) {
  for (const bool is_causal : {true, false}) {
    const auto of_operators = [=](const Tensors& all) {
      return std::get<0>(at::_scaled_dot_product_attention_math(
          all[0], all[1], all[2], {}, 0, is_causal, {}, 0.3));
    };
    const AttentionKernels& kernels = attention_kernels().back();
    const Function own = attention_by(kernels, is_causal);
    Tensors heads;
    for (int i = 0; i < 3; ++i) heads.push_back(at::randn({1, 2, 5, 4}));
    expect_same_twice(own, of_operators, heads);
    const auto of_itself = [](const Function& attention) {
      return [=](const Tensors& all) { return attention({all[0], all[0], all[0]}); };
    };
    expect_same_twice(of_itself(own), of_itself(of_operators), {heads[0]});
    expect_same_twice(packed_attention_by(kernels, is_causal), of_packed(of_operators),
        {at::randn({1, 5, 3, 2, 4})});
    const AttentionDropout dropout{.p = 0.4, .seed = 7};
    const Tensors shared{at::randn({1, 4, 5, 4}), heads[1], heads[2]};
    expect_same_twice(attention_by(kernels, is_causal, dropout),
        attention_of_operators(is_causal, dropout), shared);
    if (is_causal) continue;
    for (const Tensor& mask : masks_of(shared[0], 5))
      expect_same_twice(attention_by(kernels, false, dropout, mask),
          attention_of_operators(false, dropout, mask), shared);
  }
}

TEST(Attention, OfPartsOfOneTensorHasOneGradient) {
  torch::manual_seed(13);
  for (const AttentionKernels& kernels : attention_kernels()) {
    for (const std::int64_t length : {1, 7, 65, 130}) {
      for (const bool is_causal : {true, false}) {
        SCOPED_TRACE(::testing::Message() << kernels.softmax.name << ", " << length << is_causal);
        expect_agrees(packed_attention_by(kernels, is_causal),
            of_packed(attention_of_libtorch(is_causal)), {at::randn({2, length, 3, 2, 24})});
      }
    }
  }
  expect_same_bits_for_any_threads(
      packed_attention_by(attention_kernels().back(), false), {at::randn({2, 100, 3, 3, 24})});
}

TEST(Attention, HasTheGradientsOfItsDifferences) {
  torch::manual_seed(14);
  for (const bool is_causal : {true, false}) {
    const Tensor keys = at::randn({2, 2, 70, 24});
    expect_numerical_gradients(attention_by(attention_kernels().back(), is_causal),
        {at::randn({2, 2, 70, 24}), keys, at::randn(keys.sizes())});
  }
}

// What sees it is not a number.
TEST(Attention, PassesOnWhatIsNoNumber) {
  Tensors heads;
  for (int i = 0; i < 3; ++i) heads.push_back(at::randn({1, 1, 70, 16}));
  heads[1][0][0][40][3] = std::numeric_limits<float>::quiet_NaN();
  for (const AttentionKernels& kernels : attention_kernels()) {
    const Tensor causal = attention_by(kernels)(heads).isnan();
    EXPECT_FALSE(causal.slice(2, 0, 40).any().item<bool>());
    EXPECT_TRUE(causal.slice(2, 40).all().item<bool>());
    EXPECT_TRUE(attention_by(kernels, false)(heads).isnan().all().item<bool>());
  }
}

// Programs take views of them.
TEST(Attention, HasOutputsThatLieAsLibTorchs) {
  const Tensor heads = at::randn({2, 4, 40, 16}), tokens = at::randn({2, 40, 4, 16});
  for (const Tensor& given : {heads, tokens.transpose(1, 2)}) {
    const Tensor output = attention_by(attention_kernels().back())({given, given, given});
    EXPECT_EQ(output.strides(), given.strides());
    EXPECT_EQ(output.strides(), attention_of_libtorch()({given, given, given}).strides());
  }
}

// The largest score has all the weight, also where scores differ by more than a float holds.
TEST(Attention, OfLargeScoresIsTheValueOfTheLargest) {
  torch::manual_seed(15);
  for (const double size : {1e4, 1e9, 1e12}) {
    const Tensors heads{
        at::randn({1, 2, 40, 16}) * size, at::randn({1, 2, 40, 16}), at::randn({1, 2, 40, 16})};
    Tensors exact;
    for (const Tensor& each : heads) exact.push_back(each.to(at::kDouble));
    for (const AttentionKernels& kernels : attention_kernels()) {
      const Tensor error =
          attention_by(kernels, false)(heads) - attention_of_libtorch(false)(exact);
      EXPECT_LE(error.abs().max().item<double>(), 0.05) << kernels.softmax.name << " " << size;
    }
  }
}

TEST(Attention, OfScoresThatAreAllMinusInfinityIsZero) {
  const Tensor ones = at::ones({1, 1, 3, 8});
  const Tensors heads{ones, ones * -std::numeric_limits<float>::infinity(), ones};
  for (const AttentionKernels& kernels : attention_kernels()) {
    EXPECT_TRUE(attention_by(kernels, false)(heads).eq(0).all().item<bool>())
        << kernels.softmax.name;
    EXPECT_TRUE(attention_of_libtorch(false)(heads).eq(0).all().item<bool>());
  }
}

TEST(Attention, HasTheSameBitsForAnyNumberOfThreadsAndOfOneInputAlone) {
  const Tensor keys = at::randn({2, 2, 100, 24});
  const Tensors heads{at::randn({2, 6, 100, 24}), keys, at::randn(keys.sizes())};
  for (const bool is_causal : {true, false}) {
    for (const double p : {0.0, 0.3}) {
      const Function own = attention_by(attention_kernels().back(), is_causal, {.p = p, .seed = 3});
      expect_same_bits_for_any_threads(own, heads);
      expect_same_of_each_alone(own, heads);
    }
  }
  for (const Tensor& mask : masks_of(heads[0], 100))
    expect_same_bits_for_any_threads(
        attention_by(attention_kernels().back(), false, {}, mask), heads);
}

// The largest score then has the smallest weight.
TEST(Attention, OfAScaleThatIsNotAboveZeroIsLibTorchs) {
  const Tensor heads = at::randn({1, 2, 5, 4}).requires_grad_();
  const KernelScope scope(Kernels::kOwn);
  const auto node = [&](double scale) {
    return at::scaled_dot_product_attention(heads, heads, heads, {}, 0, /*is_causal=*/true, scale)
        .grad_fn()
        ->name();
  };
  EXPECT_NE(node(0.5).find("OwnAttention"), std::string::npos);
  for (const double scale : {-1.0, 0.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(node(scale).find("OwnAttention"), std::string::npos) << scale;
}

TEST(Attention, LeavesOtherSizesTypesAndOrdersOfMemory) {
  const auto is_own = [](const Tensor& queries, const Tensor& keys, const Tensor& values,
                          bool is_causal) {
    return is_attention_own(
        {.queries = queries, .keys = keys, .values = values, .scale = 1, .is_causal = is_causal});
  };
  const Tensor queries = at::zeros({2, 4, 6, 8}), keys = at::zeros({2, 2, 5, 8});
  EXPECT_TRUE(is_own(queries, keys, keys, false));
  EXPECT_FALSE(is_own(queries, keys, keys, true)) << "more queries than keys";
  EXPECT_FALSE(is_own(queries, keys, at::zeros({2, 2, 5, 7}), false));
  EXPECT_FALSE(is_own(queries, keys, keys.to(at::kDouble), false));
  EXPECT_FALSE(is_own(at::zeros({2, 4, 8, 6}).transpose(2, 3), keys, keys, false));
  EXPECT_FALSE(is_own(at::zeros({2, 4, 0, 8}), keys, keys, false));
  const Tensor three = at::zeros({2, 3, 5, 8}), single = at::zeros({1, 2, 5, 8});
  EXPECT_FALSE(is_own(queries, three, three, false)) << "of 4 heads";
  EXPECT_FALSE(is_own(queries, single, single, false)) << "spread over sequences";
}

TEST(Attention, IsFasterOfHeadsThatAreNotSmallAndKeepAllThreadsBusy) {
  const int before = at::get_num_threads();
  const auto is_faster = [](const Tensor& all) {
    return is_attention_faster({.queries = all, .keys = all, .values = all, .scale = 1});
  };
  at::set_num_threads(4);
  EXPECT_EQ(is_faster(at::zeros({2, 2, 16, 32})), linear::are_products_faster());
  const std::vector<std::vector<std::int64_t>> others{
      {1, 3, 32, 32}, {2, 2, 15, 32}, {2, 2, 32, 31}};
  for (const auto& sizes : others)
    EXPECT_FALSE(is_faster(at::zeros(sizes))) << at::IntArrayRef(sizes);
  at::set_num_threads(before);
}

TEST(Attention, IsCalledWithinAScope) {
  const Tensors inputs = leaves(Tensors(3, at::randn({1, 2, 5, 4})), at::kFloat);
  const auto is_own = [&](Kernels who, double dropout, bool is_causal) {
    const KernelScope scope(who);
    const Tensor result =
        at::scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], {}, dropout, is_causal);
    return result.grad_fn()->name().find("OwnAttention") != std::string::npos;
  };
  EXPECT_TRUE(is_own(Kernels::kOwn, 0, true));
  EXPECT_FALSE(is_own(Kernels::kLibTorch, 0, true));
  EXPECT_TRUE(is_own(Kernels::kOwn, 0.5, true));
  EXPECT_FALSE(is_own(Kernels::kOwn, 1, true)) << "nothing is left to scale";
  EXPECT_TRUE(is_own(Kernels::kOwn, 0, false));
}

TEST(Attention, DrawsAnotherDropoutInEachCall) {
  const Tensor heads = at::randn({1, 2, 40, 8});
  const KernelScope scope(Kernels::kOwn);
  const auto drawn = [&] {
    return at::scaled_dot_product_attention(heads, heads, heads, {}, /*dropout_p=*/0.5);
  };
  torch::manual_seed(16);
  const Tensor first = drawn(), second = drawn();
  torch::manual_seed(16);
  EXPECT_TRUE(drawn().equal(first));
  EXPECT_FALSE(second.equal(first));
}

Tensor labels_of(std::int64_t rows, std::int64_t classes) {
  Tensor labels = at::randint(classes, {rows}, at::kLong);
  labels[0] = -100;
  return labels;
}

TEST(CrossEntropy, AgreesWithDoublePrecisionOnDrawnShapes) {
  with_each<CrossEntropyKernel>(cross_entropy_kernels(), [](const CrossEntropyKernel& kernel,
                                                             std::mt19937& generator) {
    const std::int64_t rows = between(generator, 1, 20), classes = between(generator, 1, 300);
    const double smoothing = between(generator, 0, 1) == 1 ? 0.1 : 0;
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const Tensor scores = (at::randn({rows, classes}) * 5).to(type);
      const Tensor exact = scores.to(at::kDouble).requires_grad_();
      const Tensor labels = labels_of(rows, classes);
      const Tensor wanted =
          at::cross_entropy_loss(exact, labels, {}, at::Reduction::None, -100, smoothing);
      expect_close(own_cross_entropy(kernel, scores, labels, -100, smoothing), wanted, kOfFloat);
      expect_close(scores, torch::autograd::grad({wanted.sum()}, {exact})[0],
          type == at::kFloat ? kOfFloat : kOfBFloat16);
    }
  });
}

// A difference of more than e^88 has no room in a float; NaN is not to be lost.
TEST(CrossEntropy, TakesScoresOfAnySize) {
  const CrossEntropyKernel& kernel = *cross_entropy_kernels().back();
  Tensor scores = at::zeros({2, 40});
  scores[0].fill_(-1e30);
  scores[0][7] = -std::numeric_limits<float>::infinity();
  scores[0][3] = 1e30;
  scores[1][39] = std::numeric_limits<float>::quiet_NaN();
  const Tensor losses = own_cross_entropy(kernel, scores, at::full({2}, 3, at::kLong), -100, 0);
  EXPECT_EQ(losses[0].item<float>(), 0);
  EXPECT_LE(scores[0].abs().max().item<float>(), 1e-30);
  EXPECT_TRUE(losses[1].isnan().item<bool>());
  EXPECT_TRUE(scores[1].isnan().all().item<bool>());
}

// Beside 1000 a float has room for steps of 6e-5.
TEST(CrossEntropy, OfLargeScoresWhoseLabelIsSureIsSmall) {
  for (const CrossEntropyKernel* const kernel : cross_entropy_kernels()) {
    for (const double smoothing : {0.0, 0.1}) {
      Tensor scores = at::full({1, 40}, 990.0F);
      scores[0][3] = 1000;
      const Tensor labels = at::full({1}, 3, at::kLong);
      const double wanted = at::cross_entropy_loss(
          scores.to(at::kDouble), labels, {}, at::Reduction::None, -100, smoothing)
                                .item<double>();
      const Tensor loss = own_cross_entropy(*kernel, scores, labels, -100, smoothing);
      EXPECT_NEAR(loss.item<double>() / wanted, 1, 1e-3) << kernel->name << " " << smoothing;
    }
  }
}

TEST(CrossEntropy, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor scores = at::randn({70, 300}), labels = labels_of(70, 300);
  expect_same_bits_for_any_threads([&] {
    Tensor gradients = scores.clone();
    const Tensor losses =
        own_cross_entropy(*cross_entropy_kernels().back(), gradients, labels, -100, 0.1);
    return Tensors{losses, gradients};
  });
}

TEST(CrossEntropy, TellsAutogradThatScoresWereReplaced) {
  const Tensor factor = at::ones({2, 5}).requires_grad_(), scores = at::zeros({2, 5});
  const Tensor product = factor * scores;
  own_cross_entropy(*cross_entropy_kernels().back(), scores, labels_of(2, 5), -100, 0);
  EXPECT_THROW(product.sum().backward(), c10::Error);
}

TEST(CrossEntropy, RefusesALabelThatIsNoClass) {
  for (const std::int64_t label : {-1, 5}) {
    const auto call = [&] {
      static_cast<void>(own_cross_entropy(*cross_entropy_kernels().back(), at::zeros({1, 5}),
          at::full({1}, label, at::kLong), -100, 0));
    };
    EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>(call),
        "cross entropy: label " + std::to_string(label) + " is none of 5 classes");
  }
}

}  // namespace
}  // namespace lockstep::nn::fused
