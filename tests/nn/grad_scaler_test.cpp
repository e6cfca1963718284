// The cases G1, G2, G5, G10 and G11 of the conformance list; numbers of
// tests/conformance/grad_scaler.py.

#include "lockstep/nn/grad_scaler.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/nn/one_parameter.h"
#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/fused_optimizers.h"

namespace lockstep::nn {
namespace {

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
  const GradScalerState state = *GradScaler().state();
  EXPECT_EQ(state.scale, 65536);
  EXPECT_EQ(state.growth_factor, 2);
  EXPECT_EQ(state.backoff_factor, 0.5);
  EXPECT_EQ(state.growth_interval, 2000);
  EXPECT_EQ(state.growth_tracker, 0);
  expect_sequence({1, 0, 0, 1, 0}, {}, "Defaults");
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
    return lockstep::testing::message_of<InvalidArgument>([&] { scaler.load(state); });
  };
  EXPECT_THAT(message([](auto& state) { state.scale = 0; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.scale = 1e39; }), HasSubstr("the scale must be"));
  EXPECT_THAT(message([](auto& state) { state.growth_factor = 1; }), HasSubstr("growth factor"));
  EXPECT_THAT(message([](auto& state) { state.backoff_factor = 1; }), HasSubstr("backoff factor"));
  EXPECT_THAT(message([](auto& state) { state.growth_interval = 0; }), HasSubstr("interval"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = -1; }), HasSubstr("tracker"));
  EXPECT_THAT(message([](auto& state) { state.growth_tracker = 2001; }), HasSubstr("tracker"));
  EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler.load(std::nullopt); }),
      HasSubstr("not enabled"));
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
    EXPECT_THAT(lockstep::testing::message_of<InvalidArgument>([&] { scaler.step(net.optimizer); }),
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

}  // namespace
}  // namespace lockstep::nn
