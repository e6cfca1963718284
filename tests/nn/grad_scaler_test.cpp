// The cases G1, G2, G5, G10 and G11 of the conformance list; numbers of
// tests/conformance/grad_scaler.py.

#include "lockstep/nn/grad_scaler.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::message_of;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// One parameter of two numbers with an optimizer, and a gradient that is set by hand.
struct OneParameter {
  OneParameter()
      : parameter(lockstep::testing::here(at::zeros({2})).set_requires_grad(true)),
        optimizer({parameter}, 1.0) {}
  void set_gradient(double second) {
    parameter.mutable_grad() = lockstep::testing::here(torch::tensor({1.0, second}).to(at::kFloat));
  }
  double moved() const { return -parameter[0].item<double>(); }

  torch::Tensor parameter;
  torch::optim::SGD optimizer;
};

/// Does what every iteration begins with.
void scale_something(GradScaler& scaler) { scaler.scale(at::ones({})); }

using ::testing::HasSubstr;

void expect_sequence(
    const std::vector<int>& found_inf, const GradScalerOptions& options, const std::string& name) {
  // Scale and growth tracker after each step.
  const auto expected = lockstep::testing::expected_numbers("grad_scaler.txt", name);
  ASSERT_EQ(expected.size(), 2 * found_inf.size());
  OneParameter net;
  GradScaler scaler(options);
  for (std::size_t step = 0; step < found_inf.size(); ++step) {
    scale_something(scaler);
    net.set_gradient(found_inf[step] != 0 ? kInf : 1);
    EXPECT_EQ(scaler.step(net.optimizer), found_inf[step] == 0) << step;
    scaler.update();
    EXPECT_EQ(scaler.scale_factor(), expected[2 * step]) << step;
    EXPECT_EQ(scaler.state()->growth_tracker, expected[2 * step + 1]) << step;
  }
}

TEST(GradScaler, FollowsPyTorchsScalesG1) {
  const auto options = GradScalerOptions().init_scale(4).backoff_factor(0.25).growth_interval(2);
  expect_sequence({0, 0, 1, 0, 0, 0, 1, 1}, options, "G1");
}

TEST(GradScaler, DoesNotGrowToInfinityG2) {
  const auto options = GradScalerOptions().init_scale(3e38).growth_interval(1);
  expect_sequence({0, 0}, options, "G2");
}

TEST(GradScaler, HasPyTorchsDefaultsG5) {
  EXPECT_EQ(GradScaler().state(), (GradScalerState{65536, 2, 0.5, 2000, 0}));
  expect_sequence({1, 0, 0, 1, 0}, {}, "Defaults");
}

TEST(GradScaler, GoesOnFromASavedStateG5) {
  const GradScaler saved(
      GradScalerOptions().init_scale(3).growth_factor(4).backoff_factor(0.5).growth_interval(2));
  GradScaler loaded(
      GradScalerOptions().init_scale(6).growth_factor(7).backoff_factor(0.8).growth_interval(1));
  loaded.load(saved.state());
  EXPECT_EQ(loaded.state(), (GradScalerState{3, 4, 0.5, 2, 0}));
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
  GradScaler first(GradScalerOptions().init_scale(8).growth_factor(4).growth_interval(2)), second;
  take_step(first);
  second.load(first.state());
  take_step(second);
  EXPECT_EQ(second.scale_factor(), 32);
  EXPECT_EQ(second.state()->growth_tracker, 0);
}

TEST(GradScaler, RefusesImpossibleStates) {
  GradScaler scaler;
  const GradScalerState good = *scaler.state();
  const auto message = [&](auto change) {
    GradScalerState state = good;
    change(state);
    return message_of<InvalidArgument>([&] { scaler.load(state); });
  };
  EXPECT_THAT(message([](auto& state) { state.scale = 0; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.scale = 1e39; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.growth_factor = 1; }), HasSubstr("growth factor"));
  EXPECT_THAT(message([](auto& state) { state.backoff_factor = 1; }), HasSubstr("backoff factor"));
  EXPECT_THAT(message([](auto& state) { state.growth_interval = 0; }), HasSubstr("interval"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = -1; }), HasSubstr("tracker"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = 2001; }), HasSubstr("tracker"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { scaler.load(std::nullopt); }), HasSubstr("not enabled"));
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

// PyTorch's step() gives the closure's loss, which does not show this (its issue 67590).
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

// Each rank is a stage with different parameters; only the last one has a loss, rank 1 overflows
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
    EXPECT_THAT(message_of<InvalidArgument>([&] { scaler.step(net.optimizer); }),
        HasSubstr("called before scale()"));
  });
}

// What the scaler and Adam come to on a device of its own is what they come to by waiting.
TEST(GradScaler, LeavesStepsOutWithoutWaiting) {
  using lockstep::testing::here, lockstep::testing::this_device;
  const auto options = GradScalerOptions().init_scale(8).growth_interval(2);
  GradScaler waiting(options), other(options, ProcessGroup(), this_device());
  const at::TensorOptions host(at::kCPU);
  const at::Tensor expected = at::ones({3}, host).set_requires_grad(true);
  const at::Tensor actual = here(at::ones({3})).set_requires_grad(true);
  nn::Adam waited(std::vector<at::Tensor>{expected}), optimizer(std::vector<at::Tensor>{actual});
  for (const double gradient : {kInf, 1.0, 2.0, -kInf, std::nan(""), 3.0, 4.0, 5.0}) {
    scale_something(waiting);
    other.scale(here(at::ones({})));
    expected.mutable_grad() = at::full({3}, gradient, host);
    actual.mutable_grad() = here(at::full({3}, gradient));
    const bool is_taken = waiting.step(waited);
    other.step_without_wait(optimizer);
    EXPECT_EQ(other.overflowed().item<float>() == 0, is_taken);
    waiting.update();
    other.update();
    EXPECT_FALSE(other.overflowed().defined());
    EXPECT_EQ(other.state(), waiting.state());
    EXPECT_TRUE(actual.cpu().equal(expected)) << gradient;
  }
  EXPECT_EQ(other.take_skipped(), 3);
  EXPECT_EQ(other.take_skipped(), 0);
}

// Gradients of two devices: one scale, one decision.
TEST(GradScaler, TakesGradientsOfSeveralDevices) {
  const std::vector<Place> places = lockstep::testing::places(2);
  for (const std::size_t overflowing : {0U, 1U}) {
    std::vector<at::Tensor> parameters;
    for (const Place& place : places)
      parameters.push_back(at::zeros({2}, place.device).set_requires_grad(true));
    nn::Adam optimizer(parameters);
    GradScaler scaler({}, ProcessGroup(), places.front().device);
    for (const double gradient : {kInf, 65536.0}) {
      scaler.scale(at::ones({}, places.back().device));
      for (const at::Tensor& parameter : parameters)
        parameter.mutable_grad() = at::ones_like(parameter);
      parameters[overflowing].mutable_grad().fill_(gradient);
      scaler.step_without_wait(optimizer);
      scaler.update();
      for (const at::Tensor& parameter : parameters)
        EXPECT_EQ(parameter.cpu()[0].item<float>() == 0, gradient == kInf);
    }
    EXPECT_EQ(scaler.scale_factor(), 32768);
  }
}

// The case G9 of the conformance list: misuse is an error, and changes nothing.

using torch::optim::SGD;

TEST(GradScaler, RefusesImpossibleOptionsG9) {
  const auto message = [](const GradScalerOptions& options) {
    return message_of<InvalidArgument>([&] { GradScaler scaler(options); });
  };
  EXPECT_EQ(message(GradScalerOptions().growth_factor(1)),
      "GradScaler: the growth factor must be above 1: 1");
  EXPECT_EQ(message(GradScalerOptions().backoff_factor(1)),
      "GradScaler: the backoff factor must be above 0 and below 1: 1");
  EXPECT_THAT(message(GradScalerOptions().backoff_factor(0)), HasSubstr("backoff factor"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(-1)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().init_scale(1e39)), HasSubstr("scale must be"));
  EXPECT_THAT(message(GradScalerOptions().growth_interval(0)), HasSubstr("interval"));
  EXPECT_NO_THROW(GradScaler(GradScalerOptions().growth_factor(1).enabled(false)));
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
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler_.unscale_(net_.optimizer); }),
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
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler_.unscale_(net_.optimizer); }),
      "GradScaler: unscale_() was called after step(); it belongs between backward() and step()");
}

TEST_F(GradScalerMisuse, StepTwiceG9) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      "GradScaler: step() was called twice for one optimizer since the last update()");
  EXPECT_EQ(net_.moved(), 1.0 / 65536);
}

TEST_F(GradScalerMisuse, StepOrUpdateBeforeScaleG9) {
  net_.set_gradient(1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("unscale_() or step() was called before scale()"));
  EXPECT_EQ(net_.moved(), 0);
  EXPECT_EQ(net_.parameter.grad()[0].item<double>(), 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler_.update(); }),
      HasSubstr("update() was called before any step()"));
}

TEST_F(GradScalerMisuse, NoGradientsG9) {
  scale_something(scaler_);
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler_.step(net_.optimizer); }),
      HasSubstr("step() found no gradient of this optimizer's parameters"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { scaler_.update(); }),
      HasSubstr("update() was called before any step()"));
}

// A refusal changes nothing: once there is a gradient, the iteration goes on.
TEST_F(GradScalerMisuse, AfterAStepWithoutGradientsAllGoesOn) {
  for (const bool unscales : {false, true}) {
    net_.parameter.mutable_grad().reset();
    scale_something(scaler_);
    if (unscales) scaler_.unscale_(net_.optimizer);
    EXPECT_THROW(scaler_.step(net_.optimizer), InvalidArgument);
    const double before = net_.moved();
    net_.set_gradient(1);
    if (unscales) scaler_.unscale_(net_.optimizer);
    EXPECT_TRUE(scaler_.step(net_.optimizer));
    EXPECT_EQ(net_.moved() - before, 1.0 / 65536);
    scaler_.update();
  }
}

TEST_F(GradScalerMisuse, HalfGradientsG9) {
  const auto half = at::zeros({3}, at::kHalf).set_requires_grad(true);
  SGD optimizer({net_.parameter, half}, 1.0);
  begin(65536);
  half.mutable_grad() = at::ones({3}, at::kHalf);
  EXPECT_EQ(message_of<InvalidArgument>([&] { scaler_.step(optimizer); }),
      "GradScaler: unscale_() and step() take no float16 gradients, such as one of [3]; keep the "
      "parameters in float32 and compute under Autocast");
  EXPECT_EQ(net_.parameter.grad()[1].item<double>(), 65536);
}

TEST_F(GradScalerMisuse, AScaleThatCannotBe) {
  begin();
  scaler_.step(net_.optimizer);
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { scaler_.update(0); }), HasSubstr("the scale must be"));
  scaler_.update(1024);
  EXPECT_EQ(scaler_.scale_factor(), 1024);
  EXPECT_EQ(scaler_.state()->growth_tracker, 0);
}

// The cases G6 to G8 of the conformance list; numbers of tests/conformance/grad_scaler.py.

using ::testing::ElementsAreArray;

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

// The cases G3 and G4 of the conformance list.

torch::Tensor parameter_with(const torch::Tensor& gradient) {
  auto parameter = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
  parameter.mutable_grad() = gradient;
  return parameter;
}

torch::Tensor row(double a, double b, at::ScalarType type = at::kFloat) {
  return torch::tensor({a, b}).to(type);
}

TEST(UnscaleGradients, MultipliesInPlaceG3) {
  const auto parameter = parameter_with(row(4, 8));
  const void* memory = parameter.grad().data_ptr();
  const auto found = unscale_gradients({parameter}, 0.25);
  EXPECT_TRUE(found.any);
  EXPECT_TRUE(found.finite);
  EXPECT_TRUE(parameter.grad().equal(row(1, 2)));
  EXPECT_EQ(parameter.grad().data_ptr(), memory);
}

TEST(UnscaleGradients, FindsWhatIsNotFiniteAnywhereG3) {
  for (const double bad : {kInf, -kInf, std::nan("")}) {
    for (const int place : {0, 1, 2}) {
      std::vector<torch::Tensor> parameters;
      for (int i = 0; i < 3; ++i)
        parameters.push_back(parameter_with(row(4, i == place ? bad : 8)));
      EXPECT_FALSE(unscale_gradients(parameters, 0.25).finite) << bad << " in " << place;
      for (int i = 0; i < 3; ++i) {
        const auto gradient = parameters[static_cast<std::size_t>(i)].grad();
        EXPECT_EQ(gradient[0].item<double>(), 1);
        EXPECT_EQ(gradient[1].item<double>() == 2, i != place) << bad << " in " << place;
      }
    }
  }
}

TEST(UnscaleGradients, TakesStridedAndChannelsLastG3) {
  const auto whole = at::arange(24, at::kFloat).view({2, 3, 2, 2});
  const auto transposed = parameter_with(whole.select(0, 1).permute({2, 0, 1}));
  const auto last = parameter_with(whole.contiguous(at::MemoryFormat::ChannelsLast).clone());
  EXPECT_TRUE(unscale_gradients({transposed, last}, 0.5).finite);
  EXPECT_TRUE(whole.select(0, 0).equal(at::arange(12, at::kFloat).view({3, 2, 2})));
  EXPECT_TRUE(whole.select(0, 1).equal(at::arange(12, 24, at::kFloat).view({3, 2, 2}) / 2));
  EXPECT_TRUE(last.grad().equal(at::arange(24, at::kFloat).view({2, 3, 2, 2}) / 2));
  EXPECT_TRUE(last.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(UnscaleGradients, TakesSeveralTypesAtOnceG3) {
  std::vector<torch::Tensor> parameters;
  const auto types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  for (const auto type : types) parameters.push_back(parameter_with(row(4, 8, type)));
  EXPECT_TRUE(unscale_gradients(parameters, 0.25).finite);
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(parameter.grad().to(at::kFloat).equal(row(1, 2))) << parameter.scalar_type();
  }
  for (const auto& parameter : parameters) {
    parameter.mutable_grad()[1].fill_(kInf);
    EXPECT_FALSE(unscale_gradients(parameters, 1).finite) << parameter.scalar_type();
    parameter.mutable_grad()[1].fill_(1);
  }
}

TEST(UnscaleGradients, PassesOverWhatHasNoGradientOrElement) {
  EXPECT_FALSE(unscale_gradients({}, 0.25).any);
  const auto without = at::zeros({2});
  EXPECT_FALSE(unscale_gradients({without}, 0.25).any);
  const auto empty = parameter_with(at::zeros({0, 3}));
  const auto found = unscale_gradients({without, empty}, 0.25);
  EXPECT_TRUE(found.any);
  EXPECT_TRUE(found.finite);
}

TEST(UnscaleGradients, CountsATiedParameterOnce) {
  const auto parameter = parameter_with(row(4, 8));
  unscale_gradients({parameter, parameter}, 0.25);
  EXPECT_TRUE(parameter.grad().equal(row(1, 2)));
}

torch::Tensor sparse(const std::vector<std::int64_t>& indices, const torch::Tensor& values) {
  return at::sparse_coo_tensor(
      torch::tensor(indices).unsqueeze(0), values, {8}, values.options().layout(at::kSparse));
}

TEST(UnscaleGradients, TakesSparseOnesG4) {
  const auto parameter =
      parameter_with(sparse({1, 3, 5}, torch::tensor({16.0, 32.0, 64.0}).to(at::kFloat)));
  EXPECT_TRUE(unscale_gradients({parameter}, 0.25).finite);
  EXPECT_TRUE(parameter.grad()._values().equal(torch::tensor({4.0, 8.0, 16.0}).to(at::kFloat)));
  parameter.mutable_grad()._values()[2].fill_(kInf);
  EXPECT_FALSE(unscale_gradients({parameter}, 0.25).finite);
}

TEST(UnscaleGradients, FindsAnOverflowOfSparseDuplicatesG4) {
  const auto values = at::full({2}, 64000, at::kHalf);
  EXPECT_TRUE(unscale_gradients({parameter_with(sparse({1, 3}, values.clone()))}, 1).finite);
  const auto parameter = parameter_with(sparse({1, 1}, values.clone()));
  EXPECT_FALSE(unscale_gradients({parameter}, 1).finite);
  EXPECT_TRUE(parameter.grad().is_coalesced());
}

}  // namespace
}  // namespace lockstep::nn
