#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>
#include <torch/serialize.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::message_of;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

at::Tensor parameter_of_ones(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::ones(sizes, type).set_requires_grad(true);
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
        AdamOptions(0.01), AdamOptions(0.02).eps(1e-7).weight_decay(0.1).amsgrad(false), type);
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

// Whether autograd sees that the parameter has changed.
template <typename Optimizer, typename Options>
bool refuses_an_old_graph(const Options& options) {
  const auto parameter = parameter_of_ones({3});
  Optimizer optimizer(std::vector<at::Tensor>{parameter}, options);
  const auto loss = parameter.square().sum();
  loss.backward({}, /*keep_graph=*/true);
  optimizer.step();
  try {
    loss.backward();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

TEST(Optimizer, RefusesABackwardThroughOldParametersAsLibTorchsDoes) {
  EXPECT_TRUE(refuses_an_old_graph<torch::optim::Adam>(AdamOptions(0.1)));
  EXPECT_TRUE(refuses_an_old_graph<Adam>(AdamOptions(0.1)));
  EXPECT_TRUE(refuses_an_old_graph<torch::optim::AdamW>(AdamWOptions(0.1)));
  EXPECT_TRUE(refuses_an_old_graph<AdamW>(AdamWOptions(0.1)));
  EXPECT_FALSE(refuses_an_old_graph<torch::optim::SGD>(SGDOptions(0.1)));
  EXPECT_FALSE(refuses_an_old_graph<SGD>(SGDOptions(0.1)));
}

TEST(Optimizer, LeavesNegatedGradientsToLibTorch) {
  const auto parameter = parameter_of_ones({3});
  parameter.mutable_grad() = at::_neg_view(at::ones({3}, at::kDouble));
  SGD(std::vector<at::Tensor>{parameter}, SGDOptions(1.0)).step();
  EXPECT_TRUE(parameter.equal(at::full({3}, 2.0, at::kDouble)));
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

// Of LibTorch's own, of 8 steps; the orders in which parameter and moments lie in memory change
// between steps, as by a file of another layout or by set_data().
enum class Change { kLoad, kSetData };

template <typename Optimizer, typename Options>
at::Tensor after_change(
    const Options& options, const std::vector<at::Tensor>& orders, Change change) {
  auto parameter = orders[0].clone().set_requires_grad(true);
  auto optimizer = std::make_unique<Optimizer>(std::vector<at::Tensor>{parameter}, options);
  const auto step = [&](int number) {
    const auto count = at::arange(parameter.numel(), at::kDouble);
    parameter.mutable_grad() = at::sin(count * count * 0.3 + number).view(parameter.sizes());
    optimizer->step();
  };
  for (int number = 0; number < 2; ++number) step(number);
  const auto relaid = at::empty_like(orders[1]).copy_(parameter.detach());
  if (change == Change::kSetData) {
    parameter.mutable_grad().reset();
    parameter.set_data(relaid);
  } else {
    std::stringstream file;
    torch::save(*optimizer, file);
    parameter = relaid.set_requires_grad(true);
    optimizer = std::make_unique<Optimizer>(std::vector<at::Tensor>{parameter}, options);
    torch::load(*optimizer, file);
  }
  for (int number = 2; number < 4; ++number) step(number);
  return parameter.detach();
}

template <typename Ours, typename Theirs, typename Options>
void expect_same_in_any_order(const Options& options) {
  const auto rows = at::ones({2, 3, 4, 5}, at::kDouble);
  const std::vector<at::Tensor> orders{rows, rows.contiguous(at::MemoryFormat::ChannelsLast),
      at::ones({5, 4, 3, 2}, at::kDouble).permute({3, 2, 1, 0})};
  for (std::size_t from = 0; from < orders.size(); ++from) {
    for (std::size_t to = 0; to < orders.size(); ++to) {
      for (const Change change : {Change::kLoad, Change::kSetData}) {
        const std::vector<at::Tensor> both{orders[from], orders[to]};
        EXPECT_TRUE(at::allclose(after_change<Ours>(options, both, change),
            after_change<Theirs>(options, both, change), 1e-12, 1e-12))
            << "from order " << from << " to " << to;
      }
    }
  }
}

TEST(Optimizer, MomentsFollowTheParametersOrderInMemory) {
  expect_same_in_any_order<SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
  expect_same_in_any_order<Adam, torch::optim::Adam>(AdamOptions(0.1).amsgrad(true));
  expect_same_in_any_order<AdamW, torch::optim::AdamW>(AdamWOptions(0.1).amsgrad(true));
}

template <typename Optimizer, typename Options>
at::Tensor after_conversion(const Options& options) {
  const auto parameter = parameter_of_ones({3}, at::kFloat);
  Optimizer optimizer(std::vector<at::Tensor>{parameter}, options);
  for (const auto type : {at::kFloat, at::kDouble}) {
    parameter.mutable_grad().reset();
    parameter.set_data(parameter.detach().to(type));
    parameter.mutable_grad() = at::full({3}, 0.25, type);
    optimizer.step();
  }
  return parameter.detach();
}

TEST(Optimizer, LeavesMomentsOfAnotherTypeToLibTorch) {
  const auto sgd = SGDOptions(0.1).momentum(0.9);
  EXPECT_TRUE(after_conversion<SGD>(sgd).equal(after_conversion<torch::optim::SGD>(sgd)));
  const AdamOptions adam(0.1);
  EXPECT_TRUE(after_conversion<Adam>(adam).equal(after_conversion<torch::optim::Adam>(adam)));
}

// A module with tied weights lists them under each of their names.
struct TiedNet : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.matmul(a).matmul(b); }
  at::Tensor a = register_parameter("a", at::full({4, 4}, 0.5));
  at::Tensor b = register_parameter("b", a);
};

template <typename Optimizer, typename Options>
at::Tensor tied_after(
    int steps, const std::vector<at::Tensor>& parameters, TiedNet& net, const Options& options) {
  Optimizer optimizer(parameters, options);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net.forward(at::ones({1, 4}) * 0.1).square().mean().backward();
    optimizer.step();
  }
  return net.a.detach();
}

template <typename Optimizer, typename Reference, typename Options>
void expect_tied_once(const Options& options) {
  TiedNet net, other;
  const auto ours = tied_after<Optimizer>(3, net.parameters(), net, options);
  const auto expected = tied_after<Reference>(3, {other.a}, other, options);
  EXPECT_TRUE(at::allclose(ours, expected, 1e-6, 1e-7)) << ours << expected;
  EXPECT_FALSE(at::allclose(ours, at::full({4, 4}, 0.5)));
}

TEST(Optimizer, UpdatesATiedParameterOnce) {
  expect_tied_once<SGD, torch::optim::SGD>(SGDOptions(0.1));
  expect_tied_once<SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
  expect_tied_once<Adam, torch::optim::Adam>(AdamOptions(0.1));
  expect_tied_once<AdamW, torch::optim::AdamW>(AdamWOptions(0.1));
}

TEST(Optimizer, UpdatesATiedParameterWithGapsOnce) {
  const auto whole = at::ones({4, 4}, at::kDouble);
  const auto parameter = whole.narrow(1, 0, 2).set_requires_grad(true);
  SGD optimizer(std::vector<at::Tensor>{parameter, parameter}, SGDOptions(0.1));
  parameter.mutable_grad() = at::ones({4, 2}, at::kDouble);
  optimizer.step();
  EXPECT_NEAR(whole[3][1].item<double>(), 0.9, 1e-12);
}

TEST(Optimizer, RefusesAParameterInTwoGroups) {
  const auto parameter = parameter_of_ones({3});
  Adam optimizer(std::vector<at::Tensor>{parameter}, AdamOptions(0.1));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({parameter}));
  parameter.mutable_grad() = at::ones({3}, at::kDouble);
  EXPECT_THAT(message_of<InvalidArgument>([&] { optimizer.step(); }),
      HasSubstr("a parameter of shape [3] is in the param groups 0 and 1"));
}

template <typename Optimizer, typename Options>
std::string sparse_refusal(const Options& options) {
  const auto parameter = parameter_of_ones({5, 2});
  Optimizer optimizer(std::vector<at::Tensor>{parameter}, options);
  parameter.mutable_grad() = at::ones({5, 2}, at::kDouble).to_sparse(1);
  return message_of<InvalidArgument>([&] { optimizer.step(); });
}

TEST(Optimizer, SaysWhichDoNotTakeSparseGradients) {
  EXPECT_THAT(sparse_refusal<Adam>(AdamOptions(0.1)),
      HasSubstr("Adam: a parameter of shape [5, 2] has a sparse gradient"));
  EXPECT_THAT(sparse_refusal<AdamW>(AdamWOptions(0.1)), HasSubstr("AdamW: a parameter"));
  EXPECT_THAT(
      sparse_refusal<SGD>(SGDOptions(0.1).weight_decay(0.1)), HasSubstr("SGD: a parameter"));
  const auto parameter = parameter_of_ones({5, 2});
  SGD optimizer(std::vector<at::Tensor>{parameter}, SGDOptions(0.1).momentum(0.9));
  parameter.mutable_grad() = at::ones({5, 2}, at::kDouble).to_sparse(1);
  optimizer.step();
  EXPECT_NEAR(parameter[4][1].item<double>(), 0.9, 1e-12);
}

// Long runs against Python PyTorch's optimizers, made by tests/conformance/optimizers.py (OPT:
// test/cpp/api/optim.cpp).

at::Tensor start_values(at::IntArrayRef sizes, double start) {
  const auto count = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return at::sin(count * count * 0.37 + start).view(sizes);
}

// Weight and bias of Linear 2-3 and Linear 3-1.
std::vector<at::Tensor> parameters() {
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 2}, {3}, {1, 3}, {1}};
  std::vector<at::Tensor> result;
  for (std::size_t place = 0; place < shapes.size(); ++place)
    result.push_back(
        (start_values(shapes[place], static_cast<double>(place)) * 0.5).set_requires_grad(true));
  return result;
}

template <typename Optimizer, typename Options>
std::vector<double> long_run(const Options& options) {
  const auto all = parameters();
  Optimizer optimizer(all, options);
  const auto inputs = at::arange(1, 7, at::kDouble).view({3, 2}) / 10;
  std::vector<double> seen;
  for (int step = 0; step <= 1000; ++step) {
    optimizer.zero_grad();
    const auto hidden = at::sigmoid(at::linear(inputs, all[0], all[1]));
    at::sigmoid(at::linear(hidden, all[2], all[3])).sum().backward();
    optimizer.step();
    if (step % 100 != 0) continue;
    for (const auto& parameter : all) {
      const auto* values = parameter.const_data_ptr<double>();
      seen.insert(seen.end(), values, values + parameter.numel());
    }
  }
  return seen;
}

template <typename Optimizer, typename Options>
void expect_run(const Options& options, const std::string& name) {
  const auto expected = testing::expected_numbers("optimizers.txt", name);
  EXPECT_THAT((long_run<Optimizer>(options)), Pointwise(DoubleNear(1e-10), expected)) << name;
}

TEST(OptimizerBaseline, Sgd) {
  const auto momentum = SGDOptions(0.1).momentum(0.9);
  expect_run<SGD>(SGDOptions(0.1), "LongSgd");
  expect_run<SGD>(momentum, "LongSgdMomentum");
  expect_run<SGD>(SGDOptions(momentum).weight_decay(1e-2), "LongSgdMomentumDecay");
  expect_run<SGD>(SGDOptions(momentum).weight_decay(1e-6).nesterov(true), "LongSgdNesterovDecay");
}

TEST(OptimizerBaseline, Adam) {
  expect_run<Adam>(AdamOptions(1.0), "LongAdam");
  expect_run<Adam>(AdamOptions(1.0).weight_decay(1e-2), "LongAdamDecay");
  expect_run<Adam>(AdamOptions(1.0).weight_decay(1e-6).amsgrad(true), "LongAdamAmsgradDecay");
}

TEST(OptimizerBaseline, AdamW) {
  expect_run<AdamW>(AdamWOptions(1.0), "LongAdamW");
  expect_run<AdamW>(AdamWOptions(1.0).weight_decay(0), "LongAdamWNoDecay");
  expect_run<AdamW>(AdamWOptions(1.0).amsgrad(true), "LongAdamWAmsgrad");
}

// Steps that a device leaves out, and those that it makes.

using ::lockstep::testing::here;
using torch::optim::AdamParamState;
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
