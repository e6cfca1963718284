// What measuring must leave as it was: P12 (torchgpipe's test_layerwise_sandbox,
// test_sandbox_during_profiling, test_not_training).

#include <gtest/gtest.h>
#include <map>
#include <stdexcept>
#include <vector>

#include "tests/parallel/balance/test_layers.h"
#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/balance/layer_costs.h"

namespace lockstep {
namespace {

using torch::nn::BatchNorm1d;
using torch::nn::Linear;

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
  const auto layers = chain(std::make_shared<Restless>());
  at::manual_seed(7);
  const torch::Tensor expected = at::rand({5});
  at::manual_seed(7);
  const torch::Tensor sample = torch::full({4}, 1.0);
  measure_all(layers, sample);
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
