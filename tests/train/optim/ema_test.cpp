// The expected numbers are timm's, made by tests/conformance/training.py.

#include "lockstep/nn/ema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <stdexcept>

#include "tests/support/expected_numbers.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

std::vector<double> of_timm(const std::string& name) {
  return testing::expected_numbers("training.txt", name);
}

// The state of a linear layer 3-2 and a batch norm; each step gives all numbers new values.
class ChangingState {
 public:
  ChangingState() {
    for (const std::vector<std::int64_t>& sizes :
        {std::vector<std::int64_t>{2, 3}, {2}, {2}, {2}, {2}, {2}})
      tensors.push_back(at::zeros(sizes, torch::kDouble));
    tensors.push_back(at::zeros({}, torch::kLong));
    for (std::size_t parameter = 0; parameter < 4; ++parameter)
      tensors[parameter].set_requires_grad(true);
    fill(0);
  }

  void fill(int step) const {
    const torch::NoGradGuard no_gradients;
    for (std::size_t place = 0; place + 1 < tensors.size(); ++place) {
      const auto count = at::arange(tensors[place].numel(), torch::kDouble);
      const double start = static_cast<double>(place) + 0.1 * step;
      tensors[place].copy_(at::sin(count * count * 0.37 + start).view_as(tensors[place]));
    }
    tensors.back().fill_(step);
  }

  std::vector<torch::Tensor> tensors;
};

// Makes six steps, of which each average takes in all.
void make_steps(const ChangingState& state, std::initializer_list<ModelEma*> averages) {
  for (int step = 1; step <= 6; ++step) {
    state.fill(step);
    for (ModelEma* const ema : averages) ema->update();
  }
}

std::vector<double> numbers(const std::vector<torch::Tensor>& tensors) {
  std::vector<double> all;
  for (const auto& tensor : tensors) {
    const torch::Tensor flat = tensor.detach().to(torch::kDouble).flatten();
    const auto* values = flat.const_data_ptr<double>();
    all.insert(all.end(), values, values + flat.numel());
  }
  return all;
}

void expect_averages(const EmaSettings& settings, const std::vector<double>& expected) {
  const ChangingState state;
  ModelEma ema(state.tensors, settings);
  make_steps(state, {&ema});
  EXPECT_THAT(numbers(ema.averages()), Pointwise(DoubleNear(1e-14), expected));
}

TEST(ModelEma, AveragesAreThoseOfTimm) {
  expect_averages({.decay = 0.9}, of_timm("Ema"));
  expect_averages({.decay = 0.9, .warmup = true}, of_timm("EmaWarmup"));
}

TEST(ModelEma, DecaysAreThoseOfTimm) {
  for (const bool warmup : {false, true}) {
    std::vector<double> decays;
    for (const std::int64_t number : {1, 2, 3, 10, 31, 32, 33, 1000})
      decays.push_back(ema_decay({.decay = 0.9, .warmup = warmup}, number));
    EXPECT_THAT(decays,
        Pointwise(DoubleNear(1e-15), warmup ? of_timm("EmaDecaysWarmup") : of_timm("EmaDecays")));
  }
}

TEST(ModelEma, LendsTheAveragesAndTakesThemBack) {
  const ChangingState state;
  ModelEma ema(state.tensors, {.decay = 0.9});
  make_steps(state, {&ema});
  const auto own = numbers(state.tensors);
  ema.with_averages(
      [&] { EXPECT_THAT(numbers(state.tensors), Pointwise(DoubleNear(1e-14), of_timm("Ema"))); });
  EXPECT_EQ(numbers(state.tensors), own);
  EXPECT_THAT(numbers(ema.averages()), Pointwise(DoubleNear(1e-14), of_timm("Ema")));
  EXPECT_TRUE(state.tensors[0].requires_grad());
}

// A tied weight is listed once for each of its names.
TEST(ModelEma, ATiedTensorHasOneAverage) {
  const ChangingState state;
  std::vector<torch::Tensor> tied = state.tensors;
  tied.push_back(state.tensors[0]);
  ModelEma ema(tied, {.decay = 0.9}), plain(state.tensors, {.decay = 0.9});
  make_steps(state, {&ema, &plain});
  const auto own = numbers(tied);
  auto expected = plain.averages();
  expected.push_back(expected[0]);
  EXPECT_EQ(numbers(ema.averages()), numbers(expected));
  ema.with_averages([&] { EXPECT_EQ(numbers(tied), numbers(expected)); });
  EXPECT_EQ(numbers(tied), own);
  EXPECT_EQ(numbers(ema.averages()), numbers(expected));
}

TEST(ModelEma, TakesThemBackFromABodyThatThrowsToo) {
  const ChangingState state;
  ModelEma ema(state.tensors, {});
  state.fill(3);
  const auto own = numbers(state.tensors);
  EXPECT_THROW(ema.with_averages([] { throw std::runtime_error("stop"); }), std::runtime_error);
  EXPECT_EQ(numbers(state.tensors), own);
}

TEST(ModelEma, GoesOnFromWhatWasKept) {
  const ChangingState state;
  ModelEma whole(state.tensors, {.decay = 0.9, .warmup = true});
  ModelEma second(state.tensors, {.decay = 0.9, .warmup = true});
  for (int step = 1; step <= 6; ++step) {
    state.fill(step);
    whole.update();
    if (step == 3) second.restore(whole.averages(), whole.updates());
    if (step > 3) second.update();
  }
  EXPECT_EQ(second.updates(), 6);
  EXPECT_EQ(numbers(second.averages()), numbers(whole.averages()));
}

TEST(ModelEma, RefusesAveragesOfAnotherModel) {
  const ChangingState state;
  ModelEma ema(state.tensors, {});
  EXPECT_THROW(ema.restore({}, 1), InvalidArgument);
  auto other = ema.averages();
  other[0] = at::zeros({3, 2}, torch::kDouble);
  EXPECT_THROW(ema.restore(other, 1), InvalidArgument);
  EXPECT_THROW(ema.restore(ema.averages(), -1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
