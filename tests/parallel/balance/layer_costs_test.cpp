// Measured costs of layers and the cuts that follow, and what measuring must leave as it was: P12
// (torchgpipe's test_balance.py, test_layerwise_sandbox, test_sandbox_during_profiling,
// test_not_training). Nothing here asserts a time: the layers that are timed sleep for clearly
// different times, and the cut is asserted.

#include "lockstep/parallel/balance/layer_costs.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/rand_like.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// Makes a chain of layers named 0, 1, ...
template <typename... Modules>
Layers chain(Modules... modules) {
  Layers layers;
  (layers.insert(std::to_string(layers.size()), torch::nn::AnyModule(std::move(modules))), ...);
  return layers;
}

/// Takes its time.
struct Delay : torch::nn::Module {
  explicit Delay(int duration) : milliseconds(duration) {}
  torch::Tensor forward(torch::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x;
  }
  int milliseconds;
};

/// Keeps `times` tensors of its input's size for backward, beside its output.
struct Expand : torch::nn::Module {
  explicit Expand(int kept) : times(kept) {}
  torch::Tensor forward(torch::Tensor x) {
    for (int time = 0; time < times; ++time) x = x + at::rand_like(x).requires_grad_();
    return x;
  }
  int times;
};

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

TEST(Balance, P12GrowingAndShrinkingActivationsAndParameters) {
  const auto expand = [](int index) { return std::make_shared<Expand>(index); };
  const torch::Tensor sample = at::rand({10, 100, 100});
  EXPECT_THAT(balance_by_size(six(expand, true), sample, 2, 0), ElementsAre(4, 2));
  EXPECT_THAT(balance_by_size(six(expand, false), sample, 2, 0), ElementsAre(2, 4));
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

/// Hands its input on, twice.
struct Twice : torch::nn::Module {
  std::vector<torch::Tensor> forward(torch::Tensor x) { return {x * 2, x}; }
};

struct Sum : torch::nn::Module {
  torch::Tensor forward(std::vector<torch::Tensor> given) { return given.at(0) + given.at(1); }
};

TEST(LayerCosts, AreOfLayersThatHandOnSeveralTensors) {
  const auto layers = chain(Linear(4, 8), std::make_shared<Twice>(), std::make_shared<Sum>());
  const auto costs = layer_costs(layers, at::rand({2, 4}), 1);
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[1].output_bytes, 2 * 2 * 8 * 4);
  EXPECT_EQ(costs[1].activation_bytes, 2 * 8 * 4) << "one of the two is the input";
  EXPECT_GT(costs[1].backward_input, 0);
  EXPECT_GT(costs[2].backward, 0);
}

// Zero is said of what is not computed, and of nothing else.
TEST(LayerCosts, TimesAreOfWhatALayerHasToCompute) {
  const auto costs =
      layer_costs(chain(torch::nn::Flatten(), Linear(4, 8), torch::nn::ReLU(), Linear(8, 3)),
          at::rand({2, 2, 2}), 3);
  const std::array<bool, 3> has_backward_input_weight[] = {
      {false, false, false},  // the sample needs no gradient
      {true, false, true}, {true, true, false}, {true, true, true}};
  ASSERT_EQ(costs.size(), std::size(has_backward_input_weight));
  for (std::size_t index = 0; index < costs.size(); ++index) {
    const LayerCosts& layer = costs[index];
    const auto& [backward, input, weight] = has_backward_input_weight[index];
    EXPECT_GT(layer.forward, 0) << layer.name;
    EXPECT_EQ(layer.backward > 0, backward) << layer.name;
    EXPECT_EQ(layer.backward_input > 0, input) << layer.name;
    EXPECT_EQ(layer.backward_weight > 0, weight) << layer.name;
  }
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
TEST(LayerCosts, TellsForwardAndTheTwoPartsOfBackwardApart) {
  const auto asleep = chain(Linear(2, 2), std::make_shared<Delay>(20), Linear(2, 2));
  EXPECT_GE(costs_of(asleep, at::rand({2, 2}), 1).forward, 20e-3);
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
      HasSubstr("layer 1 cannot be measured"));
}

TEST(LayerCosts, NumbersThatMeanNothingAreRefused) {
  const auto layers = chain(Linear(2, 2));
  const torch::Tensor sample = at::rand({1, 2});
  const std::pair<std::function<void()>, const char*> calls[] = {
      {[&] { costs_by_time(layers, sample, 0); }, "1 pass is needed"},
      {[&] { layer_costs(layers, sample, 0); }, "1 pass is needed"},
      {[&] { costs_by_size(layers, sample, -1); }, "0 or more: -1"},
      {[&] { balance_by_size(layers, sample, 2, 1); }, "more parts than"}};
  for (const auto& [call, refusal] : calls)
    EXPECT_THAT(testing::message_of<InvalidArgument>(call), HasSubstr(refusal));
}

using torch::nn::BatchNorm1d;

std::map<std::string, torch::Tensor> state_of(const Layers& layers) {
  std::map<std::string, torch::Tensor> state;
  for (const auto& layer : layers) {
    for (const auto& entry : layer.value().ptr()->named_parameters()) {
      state[layer.key() + "." + entry.key()] = entry.value().clone();
    }
    for (const auto& entry : layer.value().ptr()->named_buffers()) {
      state[layer.key() + "." + entry.key()] = entry.value().clone();
    }
  }
  return state;
}

void expect_same(
    const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

void measure_all(const Layers& layers, const torch::Tensor& sample) {
  costs_by_time(layers, sample, 2);
  costs_by_size(layers, sample, 1);
  layer_costs(layers, sample, 2);
}

/// Changes a parameter by running, as weight normalisations do, and draws random numbers.
struct Restless : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    seen_training = seen_training && is_training();
    const torch::NoGradGuard no_gradients;
    weight.add_(1);
    return at::dropout(x, 0.5, true);
  }
  torch::Tensor weight = register_parameter("weight", at::rand({3}));
  bool seen_training = true;
};

TEST(PreservedState, P12ValuesOfParametersAndBuffers) {
  const auto layers = chain(Linear(3, 3), BatchNorm1d(3), std::make_shared<Restless>());
  const auto before = state_of(layers);
  ASSERT_EQ(before.size(), 8U);
  measure_all(layers, at::rand({4, 3}));
  expect_same(before, state_of(layers));
}

TEST(PreservedState, P12NoGradientIsLeft) {
  const auto layers = chain(Linear(3, 3), Linear(3, 3));
  measure_all(layers, at::rand({4, 3}));
  for (const auto& layer : layers) {
    for (const auto& parameter : layer.value().ptr()->parameters()) {
      EXPECT_FALSE(parameter.grad().defined());
    }
  }
}

struct Block : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm(linear(x)); }
  Linear linear = register_module("linear", Linear(3, 3));
  BatchNorm1d norm = register_module("norm", BatchNorm1d(3));
};

TEST(PreservedState, P12ModesOfModulesWithinModules) {
  auto block = std::make_shared<Block>();
  auto restless = std::make_shared<Restless>();
  block->eval();
  block->linear->train();
  restless->eval();
  costs_by_time(chain(block, restless), at::rand({4, 3}), 2);
  EXPECT_FALSE(block->is_training());
  EXPECT_TRUE(block->linear->is_training());
  EXPECT_FALSE(block->norm->is_training());
  EXPECT_FALSE(restless->is_training());
  EXPECT_TRUE(restless->seen_training);
}

// A frozen batch norm stays in evaluation: its statistics would be those of the sample otherwise.
TEST(PreservedState, TheChainRunsInTheModesThatItHas) {
  struct SeesModes : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      seen.push_back(is_training());
      return x;
    }
    std::vector<bool> seen;
  };
  auto still = std::make_shared<SeesModes>(), training = std::make_shared<SeesModes>();
  still->eval();
  layer_costs(chain(still, training), at::rand({4, 3}), 1);
  EXPECT_EQ(still->seen, std::vector<bool>(3, false));
  EXPECT_EQ(training->seen, std::vector<bool>(3, true));
}

TEST(PreservedState, RandomNumbers) {
  at::manual_seed(7);
  const torch::Tensor expected = at::rand({5});
  const auto layers = chain(std::make_shared<Restless>());
  at::manual_seed(7);
  measure_all(layers, torch::full({4}, 1.0));
  EXPECT_TRUE(at::rand({5}).equal(expected));
}

TEST(PreservedState, TheSample) {
  const torch::Tensor sample = torch::full({4}, -1.0);
  measure_all(chain(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true))), sample);
  EXPECT_TRUE(sample.equal(torch::full({4}, -1.0)));
  EXPECT_FALSE(sample.requires_grad());
}

// Writing the same values back would make the graph's backward fail.
TEST(PreservedState, AGraphOfTheCallerStaysUsable) {
  Linear linear(3, 3);
  const torch::Tensor input = at::rand({2, 3}).requires_grad_();
  const torch::Tensor loss = linear->forward(input).sum();
  measure_all(chain(linear), at::rand({2, 3}));
  loss.backward();
  EXPECT_TRUE(input.grad().defined());
}

struct Failing : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& /*x*/) { throw std::domain_error("no such input"); }
};

TEST(PreservedState, AlsoWhenALayerThrows) {
  auto restless = std::make_shared<Restless>();
  restless->eval();
  const auto layers = chain(restless, BatchNorm1d(3), std::make_shared<Failing>());
  const auto before = state_of(layers);
  EXPECT_THROW(costs_by_time(layers, at::rand({4, 3}), 1), std::domain_error);
  EXPECT_THROW(costs_by_size(layers, at::rand({4, 3}), 1), std::domain_error);
  EXPECT_THROW(layer_costs(layers, at::rand({4, 3}), 1), std::domain_error);
  expect_same(before, state_of(layers));
  EXPECT_FALSE(restless->is_training());
}

}  // namespace
}  // namespace lockstep
