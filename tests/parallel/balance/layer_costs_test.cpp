// Measured costs of layers and the cuts that follow: P12 (torchgpipe's test_balance.py). Nothing
// here asserts a time: the layers that are timed sleep for clearly different times, and the cut is
// asserted.

#include "lockstep/parallel/balance/layer_costs.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/parallel/balance/test_layers.h"
#include "tests/support/message_of.h"
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Linear;

template <typename Make>
Layers six(Make make, bool growing) {
  const auto at = [&](int index) { return make(growing ? index : 7 - index); };
  return chain(at(1), at(2), at(3), at(4), at(5), at(6));
}

TEST(Balance, P12TimesFromTenToSixtyMilliseconds) {
  const auto delay = [](int index) { return std::make_shared<Delay>(10 * index); };
  EXPECT_THAT(balance_by_time(six(delay, true), at::rand({1}), 2, 2), ElementsAre(4, 2));
  EXPECT_THAT(balance_by_time(six(delay, false), at::rand({1}), 2, 2), ElementsAre(2, 4));
}

// By its forward alone the last layer would be for free.
struct SlowBackward : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x + weight;
    y.register_hook(
        [](const torch::Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
    return y;
  }
  torch::Tensor weight = register_parameter("weight", at::rand({1}));
};

TEST(Balance, BackwardIsTimed) {
  const auto delay = [] { return std::make_shared<Delay>(30); };
  const auto layers = chain(delay(), delay(), delay(), std::make_shared<SlowBackward>());
  EXPECT_THAT(balance_by_time(layers, at::rand({1}), 2, 1), ElementsAre(3, 1));
}

Layers conv_flatten_linear() {
  return chain(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 1)), torch::nn::Flatten(), Linear(128, 10));
}

TEST(Balance, P12ConvFlattenLinear) {
  const torch::Tensor sample = at::rand({10, 3, 8, 8});
  EXPECT_THAT(balance_by_size(conv_flatten_linear(), sample, 2, 2), ElementsAre(1, 2));
  // Several passes: each starts from the sample again.
  EXPECT_EQ(costs_by_time(conv_flatten_linear(), sample, 3).size(), 3U);
}

TEST(Balance, P12GrowingAndShrinkingActivations) {
  const auto expand = [](int index) { return std::make_shared<Expand>(index); };
  const torch::Tensor sample = at::rand({10, 100, 100});
  EXPECT_THAT(balance_by_size(six(expand, true), sample, 2, 0), ElementsAre(4, 2));
  EXPECT_THAT(balance_by_size(six(expand, false), sample, 2, 0), ElementsAre(2, 4));
}

TEST(Balance, P12GrowingAndShrinkingParameters) {
  const auto growing = [](int index) { return Linear(index, index + 1); };
  EXPECT_THAT(balance_by_size(six(growing, true), at::rand({7, 1}), 2, 100), ElementsAre(4, 2));
  const auto shrinking = [](int index) { return Linear(index + 1, index); };
  EXPECT_THAT(balance_by_size(six(shrinking, false), at::rand({1, 7}), 2, 100), ElementsAre(2, 4));
}

TEST(Balance, CopiesOfParametersWeighAgainstActivations) {
  struct Both : Expand {
    explicit Both(int index) : Expand(7 - index) {
      register_parameter("weight", at::rand({10 * index}));
    }
  };
  const auto both = [](int index) { return std::make_shared<Both>(index); };
  EXPECT_THAT(balance_by_size(six(both, true), at::rand({1}), 2, 0), ElementsAre(2, 4));
  EXPECT_THAT(balance_by_size(six(both, true), at::rand({1}), 2, 100), ElementsAre(4, 2));
}

// 2 samples, 4 features to 8, float: the output alone is allocated; ReLU in place allocates
// nothing.
TEST(LayerCosts, SizesAreBytes) {
  const auto layers = chain(Linear(4, 8), torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)),
      std::make_shared<Expand>(2));
  const double parameters = (4 * 8 + 8) * 4, activations = 2 * 8 * 4;
  EXPECT_THAT(costs_by_size(layers, at::rand({2, 4}), 3),
      ElementsAre(activations + 3 * parameters, 0, 3 * activations));
}

LayerCosts costs_of(const Layers& layers, const torch::Tensor& sample, std::size_t layer) {
  return layer_costs(layers, sample, 3).at(layer);
}

// 2 samples, 4 features to 8 to 3, float: each linear layer and the ReLU between keeps its output.
TEST(LayerCosts, HasTheBytesOfEachLayer) {
  const auto layers = chain(Linear(4, 8), torch::nn::ReLU(), Linear(8, 3));
  const auto costs = layer_costs(layers, at::rand({2, 4}), 1);
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[0].name, "0");
  EXPECT_EQ(costs[2].name, "2");
  EXPECT_THAT(costs[0].parameter_bytes, ElementsAre(4 * 8 * 4, 8 * 4));
  EXPECT_THAT(costs[1].parameter_bytes, ElementsAre());
  EXPECT_THAT(costs[2].parameter_bytes, ElementsAre(8 * 3 * 4, 3 * 4));
  for (const std::size_t layer : {std::size_t{0}, std::size_t{1}}) {
    EXPECT_EQ(costs[layer].activation_bytes, 2 * 8 * 4);
    EXPECT_EQ(costs[layer].output_bytes, 2 * 8 * 4);
  }
  EXPECT_EQ(costs[2].activation_bytes, 2 * 3 * 4);
}

TEST(LayerCosts, WhatALayerChangesInPlaceIsItsOutputAllTheSame) {
  const auto in_place = torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true));
  const auto relu = costs_of(chain(Linear(4, 8), in_place), at::rand({2, 4}), 1);
  EXPECT_EQ(relu.activation_bytes, 0);
  EXPECT_EQ(relu.output_bytes, 2 * 8 * 4);
}

// Zero is said of what is not computed, and of nothing else.
TEST(LayerCosts, TimesAreOfWhatALayerHasToCompute) {
  const auto costs =
      layer_costs(chain(torch::nn::Flatten(), Linear(4, 8), torch::nn::ReLU(), Linear(8, 3)),
          at::rand({2, 2, 2}), 3);
  for (const LayerCosts& layer : costs) EXPECT_GT(layer.forward, 0) << layer.name;
  const LayerCosts &flat = costs[0], &first = costs[1], &relu = costs[2], &last = costs[3];
  EXPECT_EQ(flat.backward, 0) << "the sample needs no gradient";
  EXPECT_EQ(flat.backward_input, 0);
  EXPECT_EQ(flat.backward_weight, 0);
  EXPECT_GT(first.backward, 0);
  EXPECT_EQ(first.backward_input, 0);
  EXPECT_GT(first.backward_weight, 0);
  EXPECT_GT(relu.backward, 0);
  EXPECT_GT(relu.backward_input, 0);
  EXPECT_EQ(relu.backward_weight, 0);
  EXPECT_GT(last.backward, 0);
  EXPECT_GT(last.backward_input, 0);
  EXPECT_GT(last.backward_weight, 0);
}

TEST(LayerCosts, AFrozenLayerHasNoGradientsOfParameters) {
  Linear frozen(8, 8);
  for (const torch::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
  const auto layer = costs_of(chain(Linear(8, 8), frozen), at::rand({2, 8}), 1);
  EXPECT_GT(layer.backward_input, 0);
  EXPECT_EQ(layer.backward_weight, 0);
  EXPECT_EQ(layer.parameter_bytes.size(), 2U);
}

/// Sleeps where the gradient of its input is computed, or that of its weight.
struct SlowGradient : torch::nn::Module {
  explicit SlowGradient(bool of_input) : is_of_input(of_input) {}
  torch::Tensor forward(const torch::Tensor& x) {
    // A node above one of the two alone.
    const torch::Tensor slow = (is_of_input ? x : weight) * 1;
    if (slow.requires_grad())
      slow.register_hook([](const torch::Tensor& gradient) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
        return gradient;
      });
    return is_of_input ? slow + weight : x + slow;
  }
  static constexpr int kMilliseconds = 20;
  bool is_of_input;
  torch::Tensor weight = register_parameter("weight", at::rand({1}));
};

// A sleep takes at least its time: nothing here depends on how fast the machine is.
TEST(LayerCosts, TellsTheTwoPartsOfBackwardApart) {
  constexpr double kSleep = SlowGradient::kMilliseconds / 1e3;
  const auto slow = [](bool of_input) {
    return costs_of(
        chain(Linear(1, 1), std::make_shared<SlowGradient>(of_input)), at::rand({2, 1}), 1);
  };
  EXPECT_GE(slow(true).backward_input, kSleep);
  EXPECT_GE(slow(true).backward, kSleep);
  EXPECT_GE(slow(false).backward_weight, kSleep);
  EXPECT_GE(slow(false).backward, kSleep);
}

TEST(LayerCosts, TheSlowestForwardIsThatOfTheLayerThatSleeps) {
  const auto costs = layer_costs(
      chain(Linear(2, 2), std::make_shared<Delay>(20), Linear(2, 2)), at::rand({2, 2}), 3);
  EXPECT_GE(costs[1].forward, 20e-3);
}

TEST(LayerCosts, GradientsReachALayerThroughOthers) {
  struct Probe : torch::nn::Module {
    explicit Probe(bool* to) : asked(to) {}
    torch::Tensor forward(const torch::Tensor& x) {
      *asked = x.requires_grad();
      return x * 2;
    }
    bool* asked;
  };
  bool before = true, after = false;
  const auto layers =
      chain(std::make_shared<Probe>(&before), Linear(1, 1), std::make_shared<Probe>(&after));
  const torch::NoGradGuard the_callers_mode;
  costs_by_time(layers, at::rand({1, 1}), 1);
  EXPECT_FALSE(before);
  EXPECT_TRUE(after);
}

TEST(LayerCosts, P12RefusedIfGradientsExist) {
  Linear linear(2, 2);
  linear->forward(at::rand({1, 2})).sum().backward();
  const torch::Tensor sample = at::rand({1, 2});
  const std::vector<std::function<void()>> measurements = {
      [&] { costs_by_time(chain(linear), sample, 1); },
      [&] { costs_by_size(chain(linear), sample, 1); },
      [&] { layer_costs(chain(linear), sample, 1); }};
  for (const auto& measurement : measurements) {
    EXPECT_THAT(testing::message_of<InvalidArgument>(measurement),
        AllOf(HasSubstr("a parameter has a gradient already: 0.weight"), HasSubstr("zero_grad")));
  }
}

TEST(LayerCosts, ALayerThatGivesNoTensorIsNamed) {
  struct Number : torch::nn::Module {
    std::int64_t forward(const torch::Tensor& x) { return x.numel(); }
  };
  EXPECT_THAT(testing::message_of<InvalidArgument>([] {
    costs_by_time(chain(Linear(2, 2), std::make_shared<Number>()), at::rand({1, 2}), 1);
  }),
      HasSubstr("layer 1 must return a tensor"));
}

TEST(LayerCosts, NumbersThatMeanNothingAreRefused) {
  const auto layers = chain(Linear(2, 2));
  const torch::Tensor sample = at::rand({1, 2});
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { costs_by_time(layers, sample, 0); }),
      HasSubstr("1 pass is needed"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { layer_costs(layers, sample, 0); }),
      HasSubstr("1 pass is needed"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { costs_by_size(layers, sample, -1); }),
      HasSubstr("0 or more: -1"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { balance_by_size(layers, sample, 2, 1); }),
      HasSubstr("more parts than"));
}

}  // namespace
}  // namespace lockstep
