#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <torch/serialize.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"

namespace lockstep::nn {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

at::Tensor parameter_of_ones(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::ones(sizes, type).set_requires_grad(true);
}

// One parameter at 1.0 that sees the gradients 1, 2, 3: the conformance rows' experiment.
template <typename Optimizer, typename Options>
std::vector<double> three_steps(const Options& options) {
  const auto parameter = parameter_of_ones({1});
  Optimizer optimizer(std::vector<at::Tensor>{parameter}, options);
  std::vector<double> values;
  for (const double gradient : {1.0, 2.0, 3.0}) {
    parameter.mutable_grad() = at::ones({1}, at::kDouble) * gradient;
    optimizer.step();
    values.push_back(parameter.item<double>());
  }
  return values;
}

void expect_values(const std::vector<double>& values, const std::vector<double>& expected) {
  EXPECT_THAT(values, Pointwise(DoubleNear(1.0e-9), expected));
}

TEST(Sgd, GivesPyTorchsValues) {
  const auto momentum = SGDOptions(0.1).momentum(0.9);
  expect_values(three_steps<SGD>(SGDOptions(0.1)), {0.9, 0.7, 0.4});
  expect_values(three_steps<SGD>(momentum), {0.9, 0.61, 0.049});
  expect_values(three_steps<SGD>(SGDOptions(momentum).nesterov(true)), {0.81, 0.349, -0.4559});
  expect_values(
      three_steps<SGD>(SGDOptions(momentum).weight_decay(0.1)), {0.89, 0.5821, -0.000831});
}

TEST(Adam, GivesPyTorchsValues) {
  expect_values(three_steps<Adam>(AdamOptions(0.1)), {0.900000001, 0.803481799, 0.707681677});
  expect_values(
      three_steps<Adam>(AdamOptions(0.1).eps(1e-7)), {0.900000010, 0.803481814, 0.707681696});
}

TEST(AdamW, GivesPyTorchsValues) {
  expect_values(three_steps<AdamW>(AdamWOptions(0.1).weight_decay(0.1)),
      {0.890000001, 0.784581799, 0.680935859});
}

std::vector<at::Tensor> random_parameters(at::ScalarType type) {
  torch::manual_seed(5);
  std::vector<at::Tensor> parameters;
  for (const std::vector<std::int64_t>& sizes :
      {std::vector<std::int64_t>{33, 7}, {1}, {1000}, {4, 3, 3, 3}}) {
    parameters.push_back(at::randn(sizes, type).set_requires_grad(true));
  }
  return parameters;
}

// Ours and LibTorch's own side by side on random numbers; the second group has other options.
template <typename Ours, typename Theirs, typename Options>
void expect_same_path(const Options& options, const Options& other, at::ScalarType type) {
  const auto ours = random_parameters(type), theirs = random_parameters(type);
  Ours our_optimizer(std::vector<at::Tensor>(ours.begin(), ours.begin() + 2), options);
  Theirs their_optimizer(std::vector<at::Tensor>(theirs.begin(), theirs.begin() + 2), options);
  our_optimizer.add_param_group({{ours[2], ours[3]}, std::make_unique<Options>(other)});
  their_optimizer.add_param_group({{theirs[2], theirs[3]}, std::make_unique<Options>(other)});
  for (int step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      // The third parameter joins late: it starts with its own first step.
      if (i == 2 && step < 3) continue;
      const auto gradient = at::randn(ours[i].sizes(), type);
      ours[i].mutable_grad() = gradient.clone();
      theirs[i].mutable_grad() = gradient.clone();
    }
    our_optimizer.step();
    their_optimizer.step();
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-6;
    EXPECT_TRUE(at::allclose(ours[i], theirs[i], tolerance, tolerance)) << i;
  }
}

TEST(Optimizer, WalksThePathOfLibTorchsOwn) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    expect_same_path<Adam, torch::optim::Adam>(
        AdamOptions(0.01), AdamOptions(0.02).weight_decay(0.1).amsgrad(false), type);
    expect_same_path<Adam, torch::optim::Adam>(
        AdamOptions(0.01).amsgrad(true), AdamOptions(0.02).amsgrad(true), type);
    expect_same_path<AdamW, torch::optim::AdamW>(
        AdamWOptions(0.01), AdamWOptions(0.02).weight_decay(0.3), type);
    expect_same_path<SGD, torch::optim::SGD>(
        SGDOptions(0.01), SGDOptions(0.02).momentum(0.9).nesterov(true), type);
    expect_same_path<SGD, torch::optim::SGD>(
        SGDOptions(0.01).momentum(0.9).dampening(0.5), SGDOptions(0.02).momentum(0.8), type);
  }
}

template <typename Optimizer, typename Options>
void expect_skips(const Options& options) {
  const auto used = parameter_of_ones({2}), unused = parameter_of_ones({2});
  Optimizer optimizer(std::vector<at::Tensor>{used, unused}, options);
  used.mutable_grad() = at::ones({2}, at::kDouble);
  optimizer.step();
  EXPECT_TRUE(unused.equal(at::ones({2}, at::kDouble)));
  EXPECT_EQ(optimizer.state().size(), 1U);
  EXPECT_EQ(optimizer.state().count(used.unsafeGetTensorImpl()), 1U);
}

TEST(Optimizer, SkipsParametersWithoutGradientAndKeepsNoStateForThem) {
  expect_skips<Adam>(AdamOptions(0.1));
  expect_skips<AdamW>(AdamWOptions(0.1));
  expect_skips<SGD>(SGDOptions(0.1).momentum(0.9));
}

TEST(Optimizer, TakesTheGradientInTheParametersOrder) {
  const auto parameter = at::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto before = parameter.clone();
  parameter.set_requires_grad(true);
  const auto gradient = at::randn({2, 3, 4, 4});
  parameter.mutable_grad() = gradient;
  SGD(std::vector<at::Tensor>{parameter}, SGDOptions(1.0)).step();
  EXPECT_TRUE(at::allclose(parameter, before - gradient));
}

TEST(Optimizer, LeavesParametersWithGapsToLibTorch) {
  const auto whole = at::ones({4, 4}, at::kDouble);
  const auto parameter = whole.narrow(1, 0, 2).set_requires_grad(true);
  Adam optimizer(std::vector<at::Tensor>{parameter}, AdamOptions(0.1));
  parameter.mutable_grad() = at::ones({4, 2}, at::kDouble);
  optimizer.step();
  EXPECT_NEAR(whole[3][1].item<double>(), 0.9, 1e-6);
  EXPECT_EQ(whole[3][2].item<double>(), 1.0);
}

TEST(Optimizer, RunsAClosureWithGradientsAndGivesItsLoss) {
  const auto parameter = parameter_of_ones({1});
  SGD optimizer(std::vector<at::Tensor>{parameter}, SGDOptions(0.1));
  const auto loss = optimizer.step([&] {
    auto value = (parameter * 3).sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<double>(), 3);
  EXPECT_NEAR(parameter.item<double>(), 0.7, 1e-12);
}

template <typename Saver, typename Loader, typename Options>
void expect_continues(const Options& options) {
  const auto parameter = parameter_of_ones({3}), copy = parameter_of_ones({3});
  Saver saver(std::vector<at::Tensor>{parameter}, options);
  Loader loader(std::vector<at::Tensor>{copy}, Options(9.0));
  const auto step = [](torch::optim::Optimizer& optimizer, const at::Tensor& of, double gradient) {
    of.mutable_grad() = at::ones({3}, at::kDouble) * gradient;
    optimizer.step();
  };
  step(saver, parameter, 1);
  step(saver, parameter, 2);
  std::stringstream file;
  torch::save(saver, file);
  torch::load(loader, file);
  copy.detach().copy_(parameter);
  step(saver, parameter, 3);
  step(loader, copy, 3);
  EXPECT_TRUE(at::allclose(parameter, copy, 0, 1e-12));
}

TEST(Optimizer, ExchangesFilesWithLibTorchsOwn) {
  expect_continues<Adam, Adam>(AdamOptions(0.1));
  expect_continues<Adam, torch::optim::Adam>(AdamOptions(0.1));
  expect_continues<torch::optim::AdamW, AdamW>(AdamWOptions(0.1));
  expect_continues<SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
}

}  // namespace
}  // namespace lockstep::nn
