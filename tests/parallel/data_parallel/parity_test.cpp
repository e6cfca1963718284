// Five steps on several places end where five steps of the module itself end.
// DataParallel within ranks, and DistributedDataParallel around it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <tuple>
#include <vector>

#include "tests/support/places.h"
#include "training.h"
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/utils.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing_data_parallel::expect_close;
using testing_data_parallel::expect_same_state;
using testing_data_parallel::train;
using testing_data_parallel::twin;
using torch::Tensor;

constexpr int kSteps = 5;

/// Trains a module on places and its twin serially, and compares all that they leave.
template <typename Holder>
void expect_parity(Holder net, const std::vector<Place>& places, const Tensor& inputs,
    const Tensor& targets, double rate = 0.1) {
  auto serial = twin(net);
  DataParallel model(net, places);
  const auto losses = train(*net, model, inputs, targets, kSteps, rate);
  const auto expected = train(
      *serial, [&](const Tensor& input) { return serial->forward(input); }, inputs, targets, kSteps,
      rate);
  const double tolerance = inputs.scalar_type() == torch::kDouble ? 1e-10 : 1e-5;
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(losses[step], expected[step], tolerance * (1 + expected[step])) << "step " << i;
  }
  expect_same_state(*net, *serial);
}

class Parity : public ::testing::TestWithParam<std::tuple<int, std::int64_t>> {
 protected:
  std::vector<Place> places() const { return testing::places(std::get<0>(GetParam())); }
  std::int64_t batch() const { return std::get<1>(GetParam()); }
};

TEST_P(Parity, OfLinearLayersR1R6) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(10, 7), torch::nn::Tanh(), torch::nn::Linear(7, 5));
  net->to(torch::kDouble);
  expect_parity(net, places(), at::randn({batch(), 10}, torch::kDouble),
      at::randn({batch(), 5}, torch::kDouble));
}

TEST_P(Parity, OfAConvolutionalNetR1R6) {
  torch::manual_seed(2);
  auto net = nn::make_model("mnist-small", 10);
  // LibTorch's convolution may round in another way for another number of images, which in float
  // moves now and then a ReLU to the other side of zero; our block on the CPU does not.
  const auto type = places().front().device.is_cpu() ? torch::kFloat : torch::kDouble;
  net->to(type);
  expect_parity(
      net, places(), at::randn({batch(), 1, 28, 28}, type), at::randn({batch(), 10}, type));
}

TEST(ParityOfPlaces, InTheOtherOrderR1) {
  torch::manual_seed(3);
  auto places = testing::places(2);
  std::swap(places[0], places[1]);
  torch::nn::Linear net(10, 5);
  net->to(torch::kDouble);
  expect_parity(
      net, places, at::randn({20, 10}, torch::kDouble), at::randn({20, 5}, torch::kDouble));
}

TEST(ParityOfSparseGradients, R1) {
  torch::manual_seed(4);
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  net->to(torch::kDouble);
  auto serial = twin(net);
  DataParallel model(net, testing::places(2));
  const auto words = at::randint(10, {6, 4}, torch::kLong);
  for (int step = 0; step < kSteps; ++step) {
    model(words).square().sum().backward();
    serial->forward(words).square().sum().backward();
    ASSERT_TRUE(net->weight.grad().is_sparse());
    expect_same_state(*net, *serial);
    for (const Tensor& weight : {net->weight, serial->weight}) {
      const torch::NoGradGuard no_grad;
      weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad() = Tensor();
    }
  }
}

/// The module of PyTorch's own test: an LSTM whose batch comes first.
class RecurrentImpl : public torch::nn::Cloneable<RecurrentImpl> {
 public:
  RecurrentImpl() { reset(); }
  void reset() override {
    lstm_ = register_module("lstm",
        torch::nn::LSTM(torch::nn::LSTMOptions(6, 8).batch_first(true).bidirectional(true)));
  }
  Tensor forward(const Tensor& input) { return std::get<0>(lstm_->forward(input)); }

 private:
  torch::nn::LSTM lstm_ = nullptr;
};

TEST(ParityOfAnLstm, WithARateOfTenR1) {
  torch::manual_seed(5);
  const auto net = std::make_shared<RecurrentImpl>();
  net->to(torch::kDouble);
  expect_parity(net, testing::places(2), at::ones({4, 4, 6}, torch::kDouble),
      torch::zeros({4, 4, 16}, torch::kDouble), 10);
}

TEST(ParityOfTiedParameters, AreOneInTheModuleAndTwoInItsClones) {
  struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
    TiedImpl() { reset(); }
    void reset() override {
      first = register_module("first", torch::nn::Linear(4, 4));
      second = register_module("second", torch::nn::Linear(4, 4));
    }
    Tensor forward(const Tensor& input) { return second(first(input).tanh()); }
    void tie() { second = replace_module("second", first); }
    torch::nn::Linear first = nullptr, second = nullptr;
  };
  torch::manual_seed(6);
  const auto net = std::make_shared<TiedImpl>();
  net->to(torch::kDouble);
  net->tie();
  DataParallel model(net, testing::places(2));
  const auto input = at::randn({5, 4}, torch::kDouble);
  model(input).square().sum().backward();
  const auto gradient = net->first->weight.grad().clone();
  net->zero_grad();
  net->forward(input).square().sum().backward();
  expect_close(gradient, net->first->weight.grad(), "gradient of the tied weight");
}

INSTANTIATE_TEST_SUITE_P(PlacesAndBatches, Parity,
    ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(1, 2, 7, 20)));

/// A module whose own forward is divided over places.
class DividedImpl : public torch::nn::Module {
 public:
  explicit DividedImpl(const torch::nn::Linear& linear)
      : linear_(register_module("linear", linear)), parallel_(linear, testing::places(2)) {}

  Tensor forward(const Tensor& input) { return parallel_(input).tanh(); }

 private:
  torch::nn::Linear linear_;
  DataParallel<torch::nn::Linear> parallel_;
};

TEST(Composition, OfRanksAndPlacesEqualsOneProcess) {
  constexpr int kRanks = 2;
  torch::manual_seed(7);
  torch::nn::Linear serial(4, 3);
  serial->to(torch::kDouble);
  std::vector<torch::nn::Linear> nets;
  for (int rank = 0; rank < kRanks; ++rank) nets.emplace_back(twin(serial));
  const auto inputs = at::randn({8, 4}, torch::kDouble);
  const auto targets = at::randn({8, 3}, torch::kDouble);

  run_ranks(kRanks, [&](ProcessGroup world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    auto& net = nets[rank];
    DistributedDataParallel model(std::make_shared<DividedImpl>(net), world);
    train(*net, model, inputs.chunk(kRanks)[rank], targets.chunk(kRanks)[rank], 5, 0.1);
  });
  train(
      *serial, [&](const Tensor& input) { return serial->forward(input).tanh(); }, inputs, targets,
      5, 0.1);
  for (const auto& net : nets) expect_same_state(*net, *serial);
}

}  // namespace
}  // namespace lockstep
