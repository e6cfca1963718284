// The cases G1 to G11 of the conformance list; numbers of tests/conformance/grad_scaler.py.

#include "lockstep/nn/grad_scaler.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/optim/clip_grad_norm.h"

#include "tests/nn/grad_scaler_expected.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using torch::optim::SGD;
using torch::optim::SGDOptions;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Is one parameter of two numbers with an optimizer, and a gradient that is set by hand.
struct OneParameter {
  OneParameter() : parameter(at::zeros({2}).set_requires_grad(true)), optimizer({parameter}, 1.0) {}
  void set_gradient(double second) {
    parameter.mutable_grad() = at::tensor({1.0, second}).to(at::kFloat);
  }
  double moved() const { return -parameter[0].item<double>(); }

  torch::Tensor parameter;
  SGD optimizer;
};

void scale_something(GradScaler& scaler) { scaler.scale(at::ones({})); }

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_sequence(
    const std::vector<int>& found_inf,
    const GradScalerOptions& options,
    const std::vector<lockstep::testing::ScaleState>& expected) {
  OneParameter net;
  GradScaler scaler(options);
  for (std::size_t step = 0; step < found_inf.size(); ++step) {
    scale_something(scaler);
    net.set_gradient(found_inf[step] != 0 ? kInf : 1);
    EXPECT_EQ(scaler.step(net.optimizer), found_inf[step] == 0) << step;
    scaler.update();
    EXPECT_EQ(scaler.scale_factor(), expected[step].scale) << step;
    EXPECT_EQ(scaler.state()->growth_tracker, expected[step].growth_tracker) << step;
  }
}

TEST(GradScaler, FollowsPyTorchsScalesG1) {
  const auto options = GradScalerOptions().init_scale(4).backoff_factor(0.25).growth_interval(2);
  expect_sequence({0, 0, 1, 0, 0, 0, 1, 1}, options, lockstep::testing::kG1);
}

TEST(GradScaler, DoesNotGrowToInfinityG2) {
  const auto options = GradScalerOptions().init_scale(3e38).growth_interval(1);
  expect_sequence({0, 0}, options, lockstep::testing::kG2);
}

TEST(GradScaler, HasPyTorchsDefaultsG5) {
  const GradScalerState state = *GradScaler().state();
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.growth_factor, 2);
  EXPECT_EQ(state.backoff_factor, 0.5);
  EXPECT_EQ(state.growth_interval, 2000);
  EXPECT_EQ(state.growth_tracker, 0);
  expect_sequence({1, 0, 0, 1, 0}, {}, lockstep::testing::kDefaults);
}

TEST(GradScaler, GoesOnFromASavedStateG5) {
  const GradScaler saved(
      GradScalerOptions().init_scale(3).growth_factor(4).backoff_factor(0.5).growth_interval(2));
  GradScaler loaded(
      GradScalerOptions().init_scale(6).growth_factor(7).backoff_factor(0.8).growth_interval(1));
  loaded.load(saved.state());
  const GradScalerState state = *loaded.state();
  EXPECT_EQ(state.scale, 3);
  EXPECT_EQ(state.growth_factor, 4);
  EXPECT_EQ(state.backoff_factor, 0.5);
  EXPECT_EQ(state.growth_interval, 2);
  EXPECT_EQ(state.growth_tracker, 0);
}

// Saved between the two steps that the growth takes.
TEST(GradScaler, KeepsItsCounterInTheState) {
  OneParameter net;
  const auto take_step = [&](GradScaler& scaler) {
    scale_something(scaler);
    net.set_gradient(1);
    scaler.step(net.optimizer);
    scaler.update();
  };
  GradScaler first(GradScalerOptions().init_scale(8).growth_interval(2)), second;
  take_step(first);
  second.load(first.state());
  take_step(second);
  EXPECT_EQ(second.scale_factor(), 16);
  EXPECT_EQ(second.state()->growth_tracker, 0);
}

TEST(GradScaler, RefusesImpossibleStates) {
  GradScaler scaler;
  const GradScalerState good = *scaler.state();
  const auto message = [&](auto change) {
    GradScalerState state = good;
    change(state);
    return message_of([&] { scaler.load(state); });
  };
  EXPECT_THAT(message([](auto& state) { state.scale = 0; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.scale = 1e39; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.growth_factor = 1; }), HasSubstr("growth factor"));
  EXPECT_THAT(message([](auto& state) { state.backoff_factor = 1; }), HasSubstr("backoff factor"));
  EXPECT_THAT(message([](auto& state) { state.growth_interval = 0; }), HasSubstr("interval"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = -1; }), HasSubstr("tracker"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = 2001; }), HasSubstr("tracker"));
  EXPECT_THAT(message_of([&] { scaler.load(std::nullopt); }), HasSubstr("not enabled"));
  EXPECT_EQ(scaler.scale_factor(), good.scale);
}

TEST(GradScaler, DoesNothingWhenDisabledG5) {
  OneParameter net;
  GradScaler scaler(GradScalerOptions().enabled(false));
  const auto loss = at::ones({});
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  EXPECT_EQ(scaler.scale_factor(), 1);
  EXPECT_FALSE(scaler.state().has_value());
  net.set_gradient(kInf);
  scaler.unscale_(net.optimizer);
  EXPECT_TRUE(scaler.step(net.optimizer));
  scaler.update();
  scaler.update(7);
  scaler.load(std::nullopt);
  EXPECT_EQ(scaler.scale_factor(), 1);
  EXPECT_EQ(net.moved(), 1);
}

TEST(GradScaler, ScalesHalfLossesIntoFloat) {
  GradScaler scaler;
  const auto scaled = scaler.scale(at::full({}, 2, at::kHalf));
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_EQ(scaled.item<float>(), 131072);
  const auto both = scaler.scale(std::vector<torch::Tensor>{at::ones({2}), at::ones({3})});
  EXPECT_TRUE(both[0].equal(at::full({2}, 65536.0)));
  EXPECT_TRUE(both[1].equal(at::full({3}, 65536.0)));
}

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

void expect_parameters(
    torch::nn::Sequential& net, const std::vector<float>& expected, double tolerance) {
  std::vector<torch::Tensor> flat;
  for (const auto& parameter : net->parameters()) flat.push_back(parameter.detach().flatten());
  const auto ours = at::cat(flat);
  const auto theirs = at::tensor(expected);
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
  EXPECT_THAT(scales, ElementsAreArray(lockstep::testing::kG6Scales));
  expect_parameters(net, lockstep::testing::kG6Parameters, 1e-7);
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
  EXPECT_THAT(
      (std::vector<double>{scaler.scale_factor(), steps[0], steps[1]}),
      ElementsAreArray(lockstep::testing::kG7ScaleAndSteps));
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
  expect_parameters(scaled, lockstep::testing::kG8Accumulated, 1e-7);
  expect_parameters(plain, lockstep::testing::kG8Accumulated, 1e-7);
}

TEST(GradScaler, ClipsAsWithoutScalingG8) {
  auto plain = trained(false, 1, 0.2), scaled = trained(true, 1, 0.2);
  expect_parameters(scaled, lockstep::testing::kG8Clipped, 1e-7);
  expect_parameters(plain, lockstep::testing::kG8Clipped, 1e-7);
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
  expect_parameters(net, lockstep::testing::kG8Clipped, 1e-5);
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

TEST(GradScaler, RefusesImpossibleOptionsG9) {
  const auto message = [](const GradScalerOptions& options) {
    return message_of([&] { GradScaler scaler(options); });
  };
  EXPECT_EQ(
      message(GradScalerOptions().growth_factor(1)),
      "GradScaler: the growth factor must be above 1: 1");
  EXPECT_EQ(
      message(GradScalerOptions().backoff_factor(1)),
      "GradScaler: the backoff factor must be above 0 and below 1: 1");
  EXPECT_THAT(message(GradScalerOptions().backoff_factor(0)), HasSubstr("backoff factor"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(-1)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(1e39)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().growth_interval(0)), HasSubstr("interval"));
  EXPECT_EQ(message(GradScalerOptions().growth_factor(1).enabled(false)), "nothing was thrown");
}

class GradScalerMisuse : public ::testing::Test {
 protected:
  void begin(double second = 1) {
    scale_something(scaler_);
    net_.set_gradient(second);
  }

  OneParameter net_;
  GradScaler scaler_;
};

TEST_F(GradScalerMisuse, UnscaleTwiceG9) {
  begin(2);
  scaler_.unscale_(net_.optimizer);
  EXPECT_EQ(
      message_of([&] { scaler_.unscale_(net_.optimizer); }),
      "GradScaler: unscale_() was called twice for one optimizer since the last update()");
  EXPECT_EQ(net_.parameter.grad()[1].item<double>(), 2.0 / 65536);
  EXPECT_TRUE(scaler_.step(net_.optimizer));
  scaler_.update();
  begin();
  scaler_.unscale_(net_.optimizer);
}

TEST_F(GradScalerMisuse, UnscaleAfterStepG9) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_EQ(
      message_of([&] { scaler_.unscale_(net_.optimizer); }),
      "GradScaler: unscale_() was called after step(); it belongs between backward() and step()");
}

TEST_F(GradScalerMisuse, StepTwiceG9) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_EQ(
      message_of([&] { scaler_.step(net_.optimizer); }),
      "GradScaler: step() was called twice for one optimizer since the last update()");
  EXPECT_EQ(net_.moved(), 1.0 / 65536);
}

TEST_F(GradScalerMisuse, StepOrUpdateBeforeScaleG9) {
  net_.set_gradient(1);
  EXPECT_THAT(
      message_of([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("unscale_() or step() was called before scale()"));
  EXPECT_EQ(net_.moved(), 0);
  EXPECT_EQ(net_.parameter.grad()[0].item<double>(), 1);
  EXPECT_THAT(
      message_of([&] { scaler_.update(); }), HasSubstr("update() was called before any step()"));
}

TEST_F(GradScalerMisuse, NoGradientsG9) {
  scale_something(scaler_);
  EXPECT_THAT(
      message_of([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("step() found no gradient of this optimizer's parameters"));
  EXPECT_THAT(
      message_of([&] { scaler_.update(); }), HasSubstr("update() was called before any step()"));
}

TEST_F(GradScalerMisuse, HalfGradientsG9) {
  const auto half = at::zeros({3}, at::kHalf).set_requires_grad(true);
  SGD optimizer({net_.parameter, half}, 1.0);
  begin(65536);
  half.mutable_grad() = at::ones({3}, at::kHalf);
  EXPECT_EQ(
      message_of([&] { scaler_.step(optimizer); }),
      "GradScaler: unscale_() and step() take no float16 gradients, such as one of [3]; keep the "
      "parameters in float32 and compute under Autocast");
  EXPECT_EQ(net_.parameter.grad()[1].item<double>(), 65536);
}

TEST_F(GradScalerMisuse, AScaleThatCannotBe) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_THAT(message_of([&] { scaler_.update(0); }), HasSubstr("the scale must be"));
  scaler_.update(1024);
  EXPECT_EQ(scaler_.scale_factor(), 1024);
  EXPECT_EQ(scaler_.state()->growth_tracker, 0);
}

// PyTorch's step() gives the closure's loss, from which this cannot be told (its issue 67590).
TEST(GradScaler, TellsWhetherItSteppedG10) {
  OneParameter net;
  GradScaler scaler;
  for (const double second : {1.0, kInf, -kInf, std::nan(""), 2.0}) {
    scale_something(scaler);
    net.set_gradient(second);
    const double before = net.moved();
    const bool taken = scaler.step(net.optimizer);
    EXPECT_EQ(taken, std::isfinite(second)) << second;
    EXPECT_EQ(net.moved() > before, taken) << second;
    scaler.update();
  }
}

// As is common: the caller skips the step, after a look at the gradients, and only updates.
TEST(GradScaler, CountsGradientsThatWereUnscaledButNotUsedG10) {
  OneParameter net;
  GradScaler scaler(GradScalerOptions().init_scale(8));
  scale_something(scaler);
  net.set_gradient(kInf);
  scaler.unscale_(net.optimizer);
  scaler.update();
  EXPECT_EQ(scaler.scale_factor(), 4);
  scale_something(scaler);
  net.set_gradient(1);
  scaler.unscale_(net.optimizer);
  EXPECT_TRUE(scaler.step(net.optimizer));
}

// Each rank is a stage with parameters of its own; only the last one has a loss, rank 1 overflows
// in the second step, rank 0 in the third.
TEST(GradScaler, AllRanksLeaveOutTheSameStepsG11) {
  run_ranks(3, [](const ProcessGroup& world) {
    OneParameter net;
    GradScaler scaler(GradScalerOptions().init_scale(1024).growth_interval(1), world);
    const std::vector<int> bad_rank = {-1, 1, 0, -1};
    const std::vector<double> scales = {2048, 1024, 512, 1024};
    for (std::size_t step = 0; step < bad_rank.size(); ++step) {
      if (world.rank() == 2) scale_something(scaler);
      net.set_gradient(world.rank() == bad_rank[step] ? std::nan("") : 1);
      const double before = net.moved();
      EXPECT_EQ(scaler.step(net.optimizer), bad_rank[step] < 0);
      EXPECT_EQ(net.moved() > before, bad_rank[step] < 0);
      scaler.update();
      EXPECT_EQ(scaler.scale_factor(), scales[step]) << "rank " << world.rank() << ", " << step;
    }
  });
}

// A stage may have no parameters, or none with a gradient in this step.
TEST(GradScaler, ARankWithoutGradientsGoesWithTheOthersG11) {
  run_ranks(2, [](const ProcessGroup& world) {
    OneParameter net;
    GradScaler scaler(GradScalerOptions().init_scale(1024).growth_interval(1), world);
    scale_something(scaler);
    if (world.rank() == 0) net.set_gradient(kInf);
    EXPECT_FALSE(scaler.step(net.optimizer));
    scaler.update();
    EXPECT_EQ(scaler.scale_factor(), 512);
  });
}

TEST(GradScaler, AllRanksFailWhenNobodyHasScaledG11) {
  run_ranks(2, [](const ProcessGroup& world) {
    OneParameter net;
    GradScaler scaler({}, world);
    net.set_gradient(1);
    EXPECT_THAT(
        message_of([&] { scaler.step(net.optimizer); }), HasSubstr("called before scale()"));
  });
}

}  // namespace
}  // namespace lockstep::nn
