// The whole forward is one node of the user's graph, which behaves as the module's own graph would;
// how it divides a batch and adds up gradients.

#include <gmock/gmock.h>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/places.h"
#include "training.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/data_parallel/scatter.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing_data_parallel::computing;
using testing_data_parallel::expect_close;
using testing_data_parallel::expect_same_state;
using testing_data_parallel::twin;
using torch::Tensor;

class OneNode : public ::testing::Test {
 protected:
  OneNode() {
    net_->to(torch::kDouble);
    serial_ = twin(net_);
    model_.emplace(net_, testing::places(2));
  }

  Tensor random(std::int64_t batch, std::int64_t features) {
    return at::randn({batch, features}, torch::kDouble);
  }

  torch::nn::Sequential net_{torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 3)};
  std::shared_ptr<torch::nn::SequentialImpl> serial_;
  std::optional<DataParallel<torch::nn::Sequential>> model_;
};

TEST_F(OneNode, IsAllThatTheUsersGraphSees) {
  const auto output = (*model_)(random(5, 4));
  EXPECT_EQ(output.grad_fn()->name(), "DataParallelBackward");
  EXPECT_EQ(output.grad_fn()->num_outputs(), net_->parameters().size());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE((*model_)(random(5, 4)).requires_grad());
}

TEST_F(OneNode, GivesGradientsOfInputs) {
  auto input = random(5, 4).requires_grad_();
  auto twin_input = input.detach().clone().requires_grad_();
  ((*model_)(input * 2) * input.sum()).sum().backward();
  (serial_->forward(twin_input * 2) * twin_input.sum()).sum().backward();
  expect_close(input.grad(), twin_input.grad(), "gradient of the input");
  expect_same_state(*net_, *serial_);
}

TEST_F(OneNode, AnswersTorchGradForSomeOfTheInputs) {
  auto input = random(5, 4).requires_grad_();
  const auto loss = (*model_)(input).square().sum();
  const auto weight = net_->parameters()[2];
  const auto found = torch::autograd::grad({loss}, {weight, input});
  const auto twin_weight = serial_->parameters()[2];
  const auto expected =
      torch::autograd::grad({serial_->forward(input).square().sum()}, {twin_weight, input});
  expect_close(found[0], expected[0], "gradient of a weight");
  expect_close(found[1], expected[1], "gradient of the input");
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(OneNode, IsRetainedOrFreed) {
  const auto loss = (*model_)(random(5, 4)).square().sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = net_->parameters()[0].grad().clone();
  loss.backward();
  expect_close(net_->parameters()[0].grad(), once * 2, "accumulated gradient");
  EXPECT_ANY_THROW(loss.backward());
}

TEST_F(OneNode, SaysThatItHasBeenFreed) {
  const auto output = (*model_)(random(5, 4));
  output.backward(at::ones_like(output));
  EXPECT_THAT([&] { output.backward(at::ones_like(output)); },
      ThrowsMessage<Error>(HasSubstr("a second time through a graph that has been freed")));
}

TEST_F(OneNode, AccumulatesOverTwoForwardsBeforeOneBackward) {
  const auto a = random(5, 4), b = random(3, 4);
  ((*model_)(a).sum() + (*model_)(b).square().sum()).backward();
  (serial_->forward(a).sum() + serial_->forward(b).square().sum()).backward();
  expect_same_state(*net_, *serial_);
}

TEST_F(OneNode, CallsTheHooksOfTheUsersParameters) {
  net_->parameters()[0].register_hook([](const Tensor& gradient) { return gradient * 10; });
  const auto input = random(5, 4);
  (*model_)(input).sum().backward();
  serial_->forward(input).sum().backward();
  expect_close(
      net_->parameters()[0].grad(), serial_->parameters()[0].grad() * 10, "gradient after a hook");
}

TEST_F(OneNode, RefusesASecondDerivative) {
  const auto loss = (*model_)(random(5, 4)).square().sum();
  EXPECT_THAT([&] { torch::autograd::grad({loss}, {net_->parameters()[0]}, {}, true, true); },
      ThrowsMessage<Error>(HasSubstr("a second derivative (create_graph)")));
}

TEST_F(OneNode, NoticesParametersThatChangeBeforeBackward) {
  const auto loss = (*model_)(random(5, 4)).square().sum();
  {
    const torch::NoGradGuard no_grad;
    net_->parameters()[2].add_(1);
  }
  EXPECT_THAT([&] { loss.backward(); },
      ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
}

TEST_F(OneNode, NoticesSavedInputsThatChangeBeforeBackward) {
  auto input = random(5, 4);
  const auto loss = (*model_)(input).square().sum();
  input.add_(1);
  EXPECT_THAT([&] { loss.backward(); },
      ThrowsMessage<Error>(HasSubstr("tensor 0 of the inputs, which backward needs, has been")));
}

TEST_F(OneNode, AllowsOtherInputsToChangeBeforeBackward) {
  torch::nn::Sequential net(torch::nn::Functional([](const Tensor& input) { return input + 1; }),
      torch::nn::Linear(4, 1));
  DataParallel model(net, testing::places(2));
  auto input = at::randn({4, 4});
  const auto loss = model(input).sum();
  input.add_(1);  // nobody saved it
  EXPECT_NO_THROW(loss.backward());
}

TEST_F(OneNode, LeavesUnusedParametersWithoutGradient) {
  struct HalfImpl : torch::nn::Cloneable<HalfImpl> {
    HalfImpl() { reset(); }
    void reset() override {
      used = register_module("used", torch::nn::Linear(2, 1));
      unused = register_module("unused", torch::nn::Linear(2, 1));
      by_second = register_module("by_second", torch::nn::Linear(2, 1));
    }
    Tensor forward(const Tensor& input) {
      const bool is_second = input[0][0].item<double>() > 0;
      return is_second ? by_second(input) + used(input) : used(input);
    }
    torch::nn::Linear used = nullptr, unused = nullptr, by_second = nullptr;
  };
  const auto net = std::make_shared<HalfImpl>();
  DataParallel model(net, testing::places(2));
  model(testing::here(torch::tensor({{0.0F, 1.0F}, {2.0F, 3.0F}}))).sum().backward();
  EXPECT_TRUE(net->used->weight.grad().equal(testing::here(torch::tensor({{2.0F, 4.0F}}))));
  EXPECT_TRUE(net->by_second->weight.grad().equal(testing::here(torch::tensor({{2.0F, 3.0F}}))));
  EXPECT_FALSE(net->unused->weight.grad().defined());
}

TEST_F(OneNode, LetsReplicasWorkInPlaceOnWhatNeedsNoGradient) {
  torch::nn::Sequential net(
      torch::nn::Functional([](Tensor input) { return input.relu_(); }), torch::nn::Linear(4, 1));
  DataParallel model(net, testing::places(2));
  auto input = at::randn({4, 4});
  const auto version = input._version();
  for (int step = 0; step < 20; ++step) model(input).sum().backward();
  EXPECT_EQ(input._version(), version + 20);
  EXPECT_GE(input.min().item<float>(), 0);  // as the module itself would have left it
  const auto differentiable = at::randn({4, 4}).requires_grad_() * 1;
  EXPECT_THAT([&] { model(differentiable); },
      ThrowsMessage<InvalidArgument>(HasSubstr("changed tensor 0 of its inputs in place")));
}

TEST_F(OneNode, DiesWithItsOutput) {
  auto input = random(4, 4);
  const auto uses = input.storage().use_count();
  { const auto output = (*model_)(input); }
  EXPECT_EQ(input.storage().use_count(), uses);
  (*model_)(input).sum().backward();
  EXPECT_EQ(input.storage().use_count(), uses);
}

TEST_F(OneNode, OutlivesTheWrapper) {
  const auto input = random(5, 4);
  const auto loss = (*model_)(input).square().sum();
  model_.reset();
  loss.backward();
  serial_->forward(input).square().sum().backward();
  expect_same_state(*net_, *serial_);
}

// In float 1e8 + 1 is 1e8, so only this order gives 0: the replicas' gradients are their inputs.
TEST_F(OneNode, SumsLargeGradientsInTheOrderOfTheReplicas) {
  torch::nn::Linear net(torch::nn::LinearOptions(70000, 3).bias(false));
  DataParallel model(net, testing::places(3));
  const auto input = at::ones({3, 70000});
  input[0].fill_(1e8), input[2].fill_(-1e8);
  for (int pass = 0; pass < 10; ++pass) {
    net->zero_grad();
    model(input).sum().backward();
    EXPECT_TRUE(net->weight.grad().equal(at::zeros({3, 70000})));
  }
}

TEST(BackwardNode, GivesTheSameByOneCallOfTheEngine) {
  torch::nn::Linear net(4, 3);
  DataParallel model(net, testing::places(2));
  auto input = at::randn({5, 4}).requires_grad_();
  const auto gradients = [&](bool in_threads) {
    const auto loss = model(input);
    dynamic_cast<data_parallel::BackwardNode&>(*loss.grad_fn()).in_threads = in_threads;
    return torch::autograd::grad({loss}, {net->weight, input}, {at::ones_like(loss)});
  };
  const auto threads = gradients(true), one_call = gradients(false);
  EXPECT_TRUE(threads[0].equal(one_call[0]));
  EXPECT_TRUE(threads[1].equal(one_call[1]));
}

TEST(ChunkSizes, AreThoseOfTorchChunkR2) {
  EXPECT_THAT(data_parallel::chunk_sizes(10, 2), ElementsAre(5, 5));
  EXPECT_THAT(data_parallel::chunk_sizes(7, 3), ElementsAre(3, 3, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(0, 2), ElementsAre(0));
  for (std::int64_t batch = 1; batch < 30; ++batch) {
    for (std::int64_t count = 1; count < 10; ++count) {
      std::vector<std::int64_t> expected;
      for (const auto& piece : at::ones({batch}).chunk(count)) expected.push_back(piece.size(0));
      EXPECT_EQ(data_parallel::chunk_sizes(batch, static_cast<std::size_t>(count)), expected);
    }
  }
}

TEST(DivideElements, CutsTensorsWhereSharesEnd) {
  using data_parallel::Stretch;
  EXPECT_THAT(data_parallel::divide_elements({3, 5}, 2),
      ElementsAre(ElementsAre(Stretch{0, 0, 3}, Stretch{1, 0, 1}), ElementsAre(Stretch{1, 1, 4})));
  EXPECT_THAT(data_parallel::divide_elements({1}, 2),
      ElementsAre(ElementsAre(), ElementsAre(Stretch{0, 0, 1})));
}

template <typename Value>
auto echoing() {
  return computing(+[](const Value& value) { return value; });
}

template <typename Value>
Value echo(const Value& value) {
  DataParallel model(echoing<Value>(), testing::places(2));
  return model(value);
}

TEST(Scatter, GivesEachReplicaItsPieceAndGatherIsTheInverseR2) {
  DataParallel model(computing(+[](const Tensor& input) {
    return std::pair(at::full({1}, static_cast<double>(input.size(0))), input * 2);
  }),
      testing::places(2));
  auto input = at::ones({10}).requires_grad_();
  const auto [sizes, doubled] = model(input);
  EXPECT_TRUE(sizes.equal(at::full({2}, 5.0)));
  EXPECT_TRUE(doubled.equal(at::full({10}, 2.0)));
  doubled.backward(at::full({10}, 0.5));
  EXPECT_DOUBLE_EQ(input.grad().sum().item<double>(), 10);
}

TEST(Scatter, KeepsTheStructureOfNestedValuesR2) {
  using Value = std::tuple<std::vector<Tensor>, std::map<std::string, std::pair<Tensor, int>>,
      std::unordered_map<std::string, Tensor>, std::optional<Tensor>, std::string>;
  const auto numbers = at::arange(10);
  const Value value{{numbers, numbers * 2}, {{"a", {numbers * 3, 4}}}, {{"x", numbers * 5}},
      std::nullopt, "kept"};
  const Value back = echo(value);
  EXPECT_TRUE(same_structure(back, value));
  const auto actual = lockstep::flatten(back), expected = lockstep::flatten(value);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i]));
}

TEST(Scatter, UsesOnlyAsManyReplicasAsSamplesR2) {
  DataParallel model(
      computing(+[](const Tensor& input) { return input.sum(); }), testing::places(4));
  for (const auto& [samples, replicas] : {std::pair{9, 3}, {3, 3}, {1, 1}, {0, 1}})
    EXPECT_EQ(model(at::ones({samples})).sizes(), (std::vector<std::int64_t>{replicas}));
}

TEST(Scatter, GathersNumbersToAVectorAndLeavesThemAloneOnOnePlaceR2) {
  const auto mean = computing(+[](const Tensor& input) { return input.mean(); });
  auto input = at::arange(6, torch::kDouble).requires_grad_();
  DataParallel two(mean, testing::places(2));
  const auto means = two(input);
  EXPECT_TRUE(means.equal(testing::here(torch::tensor({1.0, 4.0}, torch::kDouble))));
  (means * testing::here(torch::tensor({3.0, 6.0}, torch::kDouble))).sum().backward();
  EXPECT_TRUE(input.grad().equal(
      testing::here(torch::tensor({1.0, 1.0, 1.0, 2.0, 2.0, 2.0}, torch::kDouble))));
  DataParallel one(mean, testing::places(1));
  EXPECT_EQ(one(input).dim(), 0);
}

TEST(Scatter, GivesPlainValuesToAllAndChecksThatResultsAgree) {
  DataParallel model(computing(+[](const Tensor& input, bool shape) {
    return std::pair(input, shape ? input.size(0) : std::int64_t{7});
  }),
      testing::places(2));
  EXPECT_EQ(model(at::ones({3}), false).second, 7);
  EXPECT_EQ(model(at::ones({4}), true).second, 2);
  EXPECT_THAT([&] { model(at::ones({3}), true); },
      ThrowsMessage<InvalidArgument>(HasSubstr("different structures or plain values")));
}

TEST(Scatter, RefusesInputsThatDoNotDivideAlike) {
  EXPECT_THAT(
      [] {
        echo(std::vector<Tensor>{at::ones({4}), at::ones({1})});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("tensor 0 has 4 samples in 2 pieces, tensor 1 has 1 in 1")));
  EXPECT_THAT(
      [] {
        echo(std::vector<Tensor>{at::ones({4}), at::ones({})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("tensor 1 of the inputs has no dimension")));
}

TEST(Gather, PutsOutputsWhereTheyAreRequestedR1) {
  const auto echo_of_tensors = echoing<Tensor>();
  const auto options = DataParallelOptions().output_place(Place{torch::kMeta});
  DataParallel elsewhere(echo_of_tensors, testing::places(2), options);
  EXPECT_TRUE(elsewhere(at::ones({4})).is_meta());
  EXPECT_TRUE(elsewhere(at::ones({1})).is_meta());  // by one replica alone
  DataParallel first(echo_of_tensors, testing::places(2));
  EXPECT_TRUE(first(at::ones({4})).is_cpu());
}

TEST(Scatter, PassesUndefinedTensorsOn) {
  const auto back = echo(std::vector<Tensor>{Tensor(), at::arange(4)});
  EXPECT_FALSE(back[0].defined());
  EXPECT_TRUE(back[1].equal(at::arange(4)));
}

}  // namespace
}  // namespace lockstep
