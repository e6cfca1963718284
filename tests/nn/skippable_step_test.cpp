// Steps that a device leaves out, and those that it makes.

#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/places.h"
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <torch/serialize.h>

#include "lockstep/nn/fused_optimizers.h"

namespace lockstep::nn {
namespace {

using ::lockstep::testing::here;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using Parameters = std::vector<at::Tensor>;

at::Tensor skip(bool is_skipped) { return here(at::full({}, is_skipped ? 1 : 0, at::kFloat)); }

/// Two parameters with an optimizer, whose gradients are a number times their own.
template <typename Optimizer>
struct Pair {
  template <typename Options>
  explicit Pair(const Options& options)
      : parameters{here(at::linspace(-1, 1, 5)).set_requires_grad(true),
            here(at::linspace(2, 3, 4)).set_requires_grad(true)},
        optimizer(parameters, options) {}

  void set_gradients(double factor) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach() * factor;
  }

  void step(double factor) {
    set_gradients(factor);
    optimizer.step();
  }

  void step_unless(bool is_skipped, double factor) {
    set_gradients(factor);
    optimizer.step_unless(skip(is_skipped));
  }

  Parameters parameters;
  Optimizer optimizer;
};

template <typename Optimizer>
void expect_equal(const Pair<Optimizer>& a, const Pair<Optimizer>& b) {
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    EXPECT_TRUE(a.parameters[i].cpu().equal(b.parameters[i].cpu()))
        << a.parameters[i].cpu() << b.parameters[i].cpu();
}

// The first step is left out, where momentum and counts begin; and one later.
template <typename Optimizer, typename Options>
void expect_skipped_steps_leave_nothing(const Options& options) {
  Pair<Optimizer> plain(options), skipping(options);
  ASSERT_TRUE(skipping.optimizer.can_skip());
  skipping.step_unless(true, INFINITY);
  for (const double factor : {0.5, 3.0, -1.0}) {
    plain.step(factor);
    skipping.step_unless(false, factor);
    skipping.step_unless(true, NAN);
    expect_equal(plain, skipping);
  }
  plain.step(2);
  skipping.step(2);
  expect_equal(plain, skipping);
}

TEST(SkippableStep, OfSgdLeavesNothing) {
  expect_skipped_steps_leave_nothing<nn::SGD>(SGDOptions(0.1));
  expect_skipped_steps_leave_nothing<nn::SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  expect_skipped_steps_leave_nothing<nn::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true));
}

TEST(SkippableStep, OfAdamLeavesNothing) {
  expect_skipped_steps_leave_nothing<nn::Adam>(AdamOptions(0.1).weight_decay(0.1));
  expect_skipped_steps_leave_nothing<nn::Adam>(AdamOptions(0.1).amsgrad(true));
  expect_skipped_steps_leave_nothing<nn::AdamW>(AdamWOptions(0.1));
}

std::int64_t steps_of(const nn::Adam& optimizer, const at::Tensor& parameter) {
  const auto& state = optimizer.state().at(parameter.unsafeGetTensorImpl());
  return static_cast<const AdamParamState&>(*state).step();
}

TEST(SkippableStep, CountsThoseThatEachParameterMade) {
  Pair<nn::Adam> pair(AdamOptions(0.1));
  pair.step(1);
  pair.step_unless(false, 1);
  pair.set_gradients(1);
  pair.parameters[1].mutable_grad().reset();
  pair.optimizer.step_unless(skip(true));
  pair.optimizer.step_unless(skip(false));
  settle_steps(pair.optimizer);
  EXPECT_EQ(steps_of(pair.optimizer, pair.parameters[0]), 3);
  EXPECT_EQ(steps_of(pair.optimizer, pair.parameters[1]), 2);
}

// Without settle_steps() in the caller's hands.
TEST(SkippableStep, IsNotCountedInWhatIsSaved) {
  Pair<nn::Adam> pair(AdamOptions(0.1)), loaded(AdamOptions(0.1));
  pair.step_unless(false, 1);
  pair.step_unless(true, 1);
  std::stringstream stream;
  torch::serialize::OutputArchive written;
  pair.optimizer.save(written);
  written.save_to(stream);
  torch::serialize::InputArchive read;
  read.load_from(stream);
  loaded.optimizer.load(read);
  EXPECT_EQ(steps_of(loaded.optimizer, loaded.parameters[0]), 1);
}

// From zeros the first step would be damped, too.
TEST(SkippableStep, CannotBeHadWithDampening) {
  Pair<nn::SGD> pair(SGDOptions(0.1).momentum(0.9).dampening(0.5));
  pair.set_gradients(1);
  EXPECT_FALSE(pair.optimizer.can_skip());
}

}  // namespace
}  // namespace lockstep::nn
