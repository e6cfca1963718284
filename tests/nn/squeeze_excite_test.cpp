// Squeeze and excitation behind a batch norm: what LibTorch computes in double precision.

#include "lockstep/nn/fused/squeeze_excite.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

namespace lockstep::nn::fused {
namespace {

constexpr double kNormEps = 1e-5, kNormMomentum = 0.1;

struct Excitation {
  std::int64_t images, channels, height, width, reduced;
  Activation activation = Activation::kSilu, between = Activation::kSilu;
  Gate gate = Gate::kSigmoid;
};

std::ostream& operator<<(std::ostream& out, const Excitation& shape) {
  return out << shape.images << "x" << shape.channels << "x" << shape.height << "x" << shape.width
             << " by " << shape.reduced << ", functions " << static_cast<int>(shape.activation)
             << " " << static_cast<int>(shape.between) << " " << static_cast<int>(shape.gate);
}

/// Input, weight and bias of the norm, weights and biases of the layers: all need gradients.
struct ExcitationOperands {
  Excitation shape;
  std::vector<at::Tensor> all;
  at::Tensor running_mean, running_var;

  static ExcitationOperands drawn(const Excitation& shape) {
    const std::int64_t channels = shape.channels, reduced = shape.reduced;
    const auto input = at::randn({shape.images, channels, shape.height, shape.width}) * 2 + 3;
    return ExcitationOperands{shape,
        {input.contiguous(at::MemoryFormat::ChannelsLast), at::randn({channels}),
            at::randn({channels}), at::randn({reduced, channels, 1, 1}), at::randn({reduced}),
            at::randn({channels, reduced, 1, 1}), at::randn({channels})},
        at::zeros({channels}), at::ones({channels})}
        .as(at::kFloat);
  }

  ExcitationOperands as(at::ScalarType type) const {
    ExcitationOperands copy{
        shape, {}, running_mean.to(type, false, true), running_var.to(type, false, true)};
    for (const at::Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }

  BatchNormArguments norm() const {
    return {all[0], all[1], all[2], running_mean, running_var, kNormMomentum, kNormEps};
  }

  SqueezeExciteLayers layers() const {
    return {all[3], all[4], all[5], all[6], shape.between, shape.gate};
  }

  at::Tensor own(const SqueezeExciteKernel& kernel) const {
    EXPECT_TRUE(is_squeeze_excite_own(norm(), layers()));
    return own_squeeze_excite(kernel, norm(), shape.activation, layers());
  }

  at::Tensor of_libtorch() const {
    const auto normed = at::batch_norm(
        all[0], all[1], all[2], running_mean, running_var, true, kNormMomentum, kNormEps, false);
    return squeeze_excite(activate(normed.clone(), shape.activation), layers());
  }
};

void expect_within(const at::Tensor& result, const at::Tensor& wanted, double allowed) {
  ASSERT_EQ(result.sizes(), wanted.sizes());
  const double size = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE((result.to(at::kDouble) - wanted).abs().max().item<double>(), allowed * size);
}

// A channel of few values that are alike has a large slope, which enlarges errors.
double enlarged_by(const ExcitationOperands& operands) {
  const auto deviation =
      operands.all[0].detach().to(at::kDouble).var({0, 2, 3}, false).add(kNormEps).sqrt();
  const auto slope = operands.all[1].detach().to(at::kDouble) / deviation;
  return std::max(1.0, slope.abs().max().item<double>());
}

// Near zero, and at the corners of hardswish and hardsigmoid, a slope is rounding's to choose.
bool has_value_at_corner(const ExcitationOperands& exact) {
  const auto normed =
      at::batch_norm(exact.all[0], exact.all[1], exact.all[2], {}, {}, true, 0, kNormEps, false);
  const auto layers = exact.layers();
  const auto values = activate(normed.clone(), exact.shape.activation);
  const auto first = at::conv2d(values.mean({2, 3}, true), layers.first_weight, layers.first_bias);
  const auto second =
      at::conv2d(activate(first.clone(), layers.between), layers.second_weight, layers.second_bias);
  const auto is_near = [](const at::Tensor& seen, double corner) {
    return ((seen - corner).abs() < 1e-4).any().item<bool>();
  };
  return std::ranges::any_of(std::vector{normed, first, second}, [&](const at::Tensor& seen) {
    return is_near(seen, 0) || is_near(seen, 3) || is_near(seen, -3);
  });
}

void expect_agrees(const Excitation& shape, const SqueezeExciteKernel& kernel) {
  SCOPED_TRACE(::testing::Message() << shape << ", " << kernel.name);
  auto own = ExcitationOperands::drawn(shape), exact = own.as(at::kDouble);
  while (has_value_at_corner(exact)) {
    own = ExcitationOperands::drawn(shape);
    exact = own.as(at::kDouble);
  }
  const auto output = own.own(kernel), expected = exact.of_libtorch();
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  const double allowed = 1e-5 * enlarged_by(own);
  expect_within(output, expected, allowed);
  expect_within(own.running_mean, exact.running_mean, 1e-6);
  expect_within(own.running_var, exact.running_var, 1e-6);
  const auto gradient = at::randn(output.sizes());
  const auto results = torch::autograd::grad({output}, own.all, {gradient});
  const auto wanted = torch::autograd::grad({expected}, exact.all, {gradient.to(at::kDouble)});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "gradient " << i);
    expect_within(results[i], wanted[i], allowed);
  }
}

constexpr Activation kAnyActivation[] = {
    Activation::kNone, Activation::kRelu, Activation::kSilu, Activation::kHardswish};

TEST(SqueezeExcite, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(3);
  std::mt19937 generator(4);
  const auto drawn = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(generator);
  };
  for (const SqueezeExciteKernel* const kernel : squeeze_excite_kernels()) {
    for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round)
      expect_agrees({.images = drawn(2, 5),
                        .channels = drawn(1, 40),
                        .height = drawn(1, 6),
                        .width = drawn(1, 6),
                        .reduced = drawn(1, 9),
                        .activation = kAnyActivation[drawn(0, 3)],
                        .between = kAnyActivation[drawn(0, 3)],
                        .gate = drawn(0, 1) == 0 ? Gate::kSigmoid : Gate::kHardsigmoid},
          *kernel);
  }
}

// Of many blocks of pixels, and of one that is not full.
TEST(SqueezeExcite, AgreesOnLargeImages) {
  torch::manual_seed(5);
  for (const SqueezeExciteKernel* const kernel : squeeze_excite_kernels())
    expect_agrees({.images = 2, .channels = 19, .height = 37, .width = 41, .reduced = 4}, *kernel);
}

TEST(SqueezeExcite, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(6);
  const int before = at::get_num_threads();
  // In the second there are so many gates that LibTorch shares them out.
  for (const auto& operands : {ExcitationOperands::drawn({5, 24, 9, 7, 6}),
           ExcitationOperands::drawn({130, 260, 1, 2, 255})}) {
    const auto results = [&](int threads) {
      at::set_num_threads(threads);
      const auto output = operands.own(*squeeze_excite_kernels().back());
      auto found = torch::autograd::grad({output.square().sum()}, operands.all);
      found.push_back(output);
      return found;
    };
    const auto one = results(1), three = results(3);
    at::set_num_threads(before);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
  }
}

TEST(SqueezeExcite, HasSecondDerivatives) {
  torch::manual_seed(7);
  const auto own = ExcitationOperands::drawn({3, 5, 4, 4, 2}), exact = own.as(at::kDouble);
  const auto second = [](const at::Tensor& output, const std::vector<at::Tensor>& trained) {
    const auto first = torch::autograd::grad({output.pow(3).mean()}, trained, {}, true, true);
    at::Tensor penalty = at::zeros({}, output.options());
    for (const auto& gradient : first) penalty = penalty + gradient.square().sum();
    return torch::autograd::grad({penalty}, trained);
  };
  const auto expect_agrees_on = [&](const std::vector<std::size_t>& trained) {
    std::vector<at::Tensor> of_own, of_exact;
    for (const std::size_t i : trained) {
      of_own.push_back(own.all[i]);
      of_exact.push_back(exact.all[i]);
    }
    const auto results = second(own.own(*squeeze_excite_kernels().back()), of_own);
    const auto wanted = second(exact.of_libtorch(), of_exact);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      SCOPED_TRACE(trained[i]);
      EXPECT_GT(wanted[i].abs().max().item<double>(), 0);
      expect_within(results[i], wanted[i], 1e-4);
    }
  };
  expect_agrees_on({0, 1, 2, 3, 4, 5, 6});
  for (const std::size_t frozen : {0U, 2U, 3U, 6U}) {
    own.all[frozen].requires_grad_(false);
    exact.all[frozen].requires_grad_(false);
  }
  expect_agrees_on({1, 4, 5});
}

TEST(SqueezeExcite, GivesTheOthersTheSameGradientsWhereOneIsFrozen) {
  torch::manual_seed(8);
  const SqueezeExciteKernel& kernel = *squeeze_excite_kernels().back();
  const auto whole = ExcitationOperands::drawn({3, 9, 5, 4, 2});
  const auto output = whole.own(kernel);
  const auto wanted = torch::autograd::grad({output.square().sum()}, whole.all);
  for (std::size_t frozen = 0; frozen < wanted.size(); ++frozen) {
    const auto some = whole.as(at::kFloat);
    some.all[frozen].requires_grad_(false);
    some.own(kernel).square().sum().backward();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor& found = some.all[i].grad();
      EXPECT_EQ(found.defined(), i != frozen);
      if (found.defined()) EXPECT_TRUE(found.equal(wanted[i])) << frozen << ", " << i;
    }
  }
  const torch::NoGradGuard all_frozen;
  EXPECT_TRUE(whole.own(kernel).equal(output));
}

// A NaN among what makes gates is one channel's or that of all, as LibTorch computes, and none of
// its NaNs is lost in gradients; where a ReLU lets nothing of a channel pass we have more.
TEST(SqueezeExcite, PassesNansOn) {
  torch::manual_seed(9);
  for (const SqueezeExciteKernel* const kernel : squeeze_excite_kernels()) {
    for (const Activation activation : kAnyActivation) {
      for (std::size_t broken = 0; broken < 7; ++broken) {
        SCOPED_TRACE(::testing::Message()
                     << kernel->name << " " << static_cast<int>(activation) << " " << broken);
        const auto own = ExcitationOperands::drawn({2, 5, 4, 4, 2, activation});
        own.all[broken].data().select(0, 0).fill_(std::numeric_limits<double>::quiet_NaN());
        const auto exact = own.as(at::kDouble);
        const auto output = own.own(*kernel), expected = exact.of_libtorch();
        EXPECT_TRUE(output.isnan().equal(expected.isnan()));
        EXPECT_EQ(expected.isnan().all().item<bool>(), broken < 5);
        const auto found = torch::autograd::grad({output.sum()}, own.all);
        const auto wanted = torch::autograd::grad({expected.sum()}, exact.all);
        for (std::size_t i = 0; i < wanted.size(); ++i)
          EXPECT_FALSE((wanted[i].isnan() & ~found[i].isnan()).any().item<bool>()) << i;
      }
    }
  }
}

TEST(SqueezeExcite, LeavesOtherTypesShapesAndOrdersAlone) {
  const auto given = ExcitationOperands::drawn({2, 6, 4, 4, 3});
  const auto can = [&](std::size_t changed, const at::Tensor& tensor) {
    ExcitationOperands other = given;
    other.all[changed] = tensor;
    return is_squeeze_excite_own(other.norm(), other.layers());
  };
  EXPECT_TRUE(can(0, given.all[0]));
  EXPECT_FALSE(can(0, given.all[0].contiguous())) << "rows of channels";
  EXPECT_FALSE(can(0, given.all[0].to(at::kBFloat16)));
  EXPECT_FALSE(can(3, at::randn({3, 6, 3, 3}))) << "a larger kernel";
  EXPECT_FALSE(can(3, at::randn({3, 6, 1, 1}, at::kDouble)));
  EXPECT_FALSE(can(4, {})) << "no bias";
  EXPECT_FALSE(can(5, at::randn({6, 2, 1, 1}))) << "groups";
  EXPECT_FALSE(can(6, at::randn({1}))) << "spread over all";
}

}  // namespace
}  // namespace lockstep::nn::fused
