// The cases G6 to G8 of the conformance list; numbers of tests/conformance/grad_scaler.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/nn/one_parameter.h"
#include "tests/support/expected_numbers.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sin.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/optim/clip_grad_norm.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAreArray;
using torch::optim::SGD;

// The script's net and data.
torch::nn::Sequential formula_net() {
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::Linear(8, 8));
  const torch::NoGradGuard no_gradients;
  std::int64_t index = 0;
  for (const auto& parameter : net->parameters()) {
    const auto numbers = at::cos(at::arange(parameter.numel(), at::kDouble) + index++);
    parameter.copy_(numbers.to(at::kFloat).view_as(parameter) * 0.3);
  }
  return net;
}

std::vector<torch::Tensor> formula_data() {
  return at::sin(at::arange(4 * 2 * 3 * 8, at::kDouble)).to(at::kFloat).view({4, 2, 3, 8}).unbind();
}

torch::Tensor loss_of(torch::nn::Sequential& net, const torch::Tensor& batch) {
  return at::mse_loss(net->forward(batch[0]), batch[1]);
}

std::vector<double> pytorchs(const std::string& name) {
  return lockstep::testing::expected_numbers("grad_scaler.txt", name);
}

void expect_parameters(torch::nn::Sequential& net, const std::string& name, double tolerance) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().flatten());
  const auto ours = at::cat(flat);
  const auto theirs = torch::tensor(pytorchs(name), at::kDouble).to(at::kFloat);
  ASSERT_EQ(ours.sizes(), theirs.sizes());
  EXPECT_LT((ours - theirs).abs().max().item<double>(), tolerance);
}

void spoil(torch::nn::Sequential& net) {
  net->named_parameters()["1.weight"].mutable_grad().fill_(kInf);
}

TEST(GradScaler, LeavesOutTheThirdStepOfFourG6) {
  auto net = formula_net();
  SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(128).growth_interval(1));
  std::vector<double> scales;
  std::vector<bool> taken;
  for (const auto& batch : formula_data()) {
    optimizer.zero_grad();
    scaler.scale(loss_of(net, batch)).backward();
    if (taken.size() == 2) spoil(net);
    const auto before = net->parameters()[0].detach().clone();
    taken.push_back(scaler.step(optimizer));
    EXPECT_EQ(before.equal(net->parameters()[0]), !taken.back());
    scaler.update();
    scales.push_back(scaler.scale_factor());
  }
  EXPECT_EQ(taken, (std::vector<bool>{true, true, false, true}));
  EXPECT_THAT(scales, ElementsAreArray(pytorchs("G6Scales")));
  expect_parameters(net, "G6Parameters", 1e-7);
}

TEST(GradScaler, LeavesOutTheStepOfOneOptimizerAloneG7) {
  auto net = formula_net();
  SGD first(net[0]->parameters(), 0.1), second(net[1]->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(128).growth_interval(1));
  std::vector<double> steps = {0, 0};
  for (int step = 0; step < 4; ++step) {
    net->zero_grad();
    scaler.scale(loss_of(net, formula_data()[static_cast<std::size_t>(step)])).backward();
    if (step == 1) spoil(net);
    if (scaler.step(first)) ++steps[0];
    if (scaler.step(second)) ++steps[1];
    scaler.update();
  }
  EXPECT_THAT((std::vector<double>{scaler.scale_factor(), steps[0], steps[1]}),
      ElementsAreArray(pytorchs("G7ScaleAndSteps")));
}

// With the scaler and, for comparison, without.
torch::nn::Sequential trained(bool enabled, int accumulated, std::optional<double> largest_norm) {
  auto net = formula_net();
  SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(128).growth_interval(1).enabled(enabled));
  int step = 0;
  for (const auto& batch : formula_data()) {
    scaler.scale(loss_of(net, batch)).backward();
    if (++step % accumulated != 0) continue;
    if (largest_norm) {
      scaler.unscale_(optimizer);
      clip_grad_norm(net->parameters(), *largest_norm);
    }
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  }
  return net;
}

TEST(GradScaler, AccumulatesAsWithoutScalingG8) {
  auto plain = trained(false, 2, {}), scaled = trained(true, 2, {});
  expect_parameters(scaled, "G8Accumulated", 1e-7);
  expect_parameters(plain, "G8Accumulated", 1e-7);
}

TEST(GradScaler, ClipsAsWithoutScalingG8) {
  auto plain = trained(false, 1, 0.2), scaled = trained(true, 1, 0.2);
  expect_parameters(scaled, "G8Clipped", 1e-7);
  expect_parameters(plain, "G8Clipped", 1e-7);
}

// The other way to clip: scaled gradients by a scaled norm.
TEST(GradScaler, ClipsScaledGradientsByAScaledNormG8) {
  auto net = formula_net();
  SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(128).growth_interval(1));
  for (const auto& batch : formula_data()) {
    optimizer.zero_grad();
    scaler.scale(loss_of(net, batch)).backward();
    clip_grad_norm(net->parameters(), 0.2 * scaler.scale_factor());
    scaler.step(optimizer);
    scaler.update();
  }
  expect_parameters(net, "G8Clipped", 1e-5);
}

// The gradient's own norm is part of the loss: a second derivative of what was scaled.
torch::nn::Sequential trained_with_penalty(bool enabled) {
  auto net = formula_net();
  SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(GradScalerOptions().init_scale(128).growth_interval(1).enabled(enabled));
  for (const auto& batch : formula_data()) {
    optimizer.zero_grad();
    const auto loss = loss_of(net, batch);
    const auto gradients = torch::autograd::grad(
        {scaler.scale(loss)}, net->parameters(), {}, /*retain_graph=*/true, /*create_graph=*/true);
    auto squares = at::zeros({});
    for (const auto& gradient : gradients) {
      squares = squares + (gradient / scaler.scale_factor()).square().sum();
    }
    scaler.scale(loss + squares.sqrt()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  return net;
}

TEST(GradScaler, PenalisesGradientsAsWithoutScalingG8) {
  auto plain = trained_with_penalty(false), scaled = trained_with_penalty(true);
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    EXPECT_TRUE(at::allclose(scaled->parameters()[i], plain->parameters()[i], 0, 1e-7)) << i;
  }
  EXPECT_FALSE(plain->parameters()[0].equal(trained(false, 1, {})->parameters()[0]));
}

}  // namespace
}  // namespace lockstep::nn
