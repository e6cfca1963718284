// Measured costs of layers and the cuts that follow: P12 (torchgpipe's test_balance.py). Nothing
// here asserts a time: the layers that are timed sleep for clearly different times, and the cut is
// asserted.

#include "lockstep/parallel/balance/layer_costs.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  for (const bool time : {true, false}) {
    EXPECT_THAT(testing::message_of<InvalidArgument>([&] {
      if (time) {
        costs_by_time(chain(linear), at::rand({1, 2}), 1);
      } else {
        costs_by_size(chain(linear), at::rand({1, 2}), 1);
      }
    }),
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
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { costs_by_size(layers, sample, -1); }),
      HasSubstr("0 or more: -1"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { balance_by_size(layers, sample, 2, 1); }),
      HasSubstr("more parts than"));
}

}  // namespace
}  // namespace lockstep
