// Five steps on several places end where five steps of the module itself end.

#include <array>
#include <tuple>

#include <gmock/gmock.h>

#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/utils.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/data_parallel.h"

#include "training.h"

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
void expect_parity(
    Holder net,
    const std::vector<Place>& places,
    const Tensor& inputs,
    const Tensor& targets,
    double rate = 0.1) {
  auto serial = twin(net);
  DataParallel model(net, places);
  const auto losses = train(
      *net, [&](const Tensor& input) { return model(input); }, inputs, targets, kSteps, rate);
  const auto expected = train(
      *serial,
      [&](const Tensor& input) { return serial->forward(input); },
      inputs,
      targets,
      kSteps,
      rate);
  const double tolerance = inputs.scalar_type() == torch::kDouble ? 1e-10 : 1e-5;
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(losses[step], expected[step], tolerance * (1 + expected[step])) << "step " << i;
  }
  expect_same_state(*net, *serial);
}

class Parity : public testing::TestWithParam<std::tuple<int, std::int64_t>> {
 protected:
  std::vector<Place> places() const { return cpu_places(std::get<0>(GetParam())); }
  std::int64_t batch() const { return std::get<1>(GetParam()); }
};

TEST_P(Parity, OfLinearLayersR1R6) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(10, 7), torch::nn::Tanh(), torch::nn::Linear(7, 5));
  net->to(torch::kDouble);
  expect_parity(
      net,
      places(),
      at::randn({batch(), 10}, torch::kDouble),
      at::randn({batch(), 5}, torch::kDouble));
}

TEST_P(Parity, OfAConvolutionalNetR1R6) {
  torch::manual_seed(2);
  auto net = nn::make_model("mnist-small", 10);
  expect_parity(net, places(), at::randn({batch(), 1, 28, 28}), at::randn({batch(), 10}));
}

INSTANTIATE_TEST_SUITE_P(
    PlacesAndBatches,
    Parity,
    testing::Combine(testing::Values(1, 2, 3), testing::Values(1, 2, 7, 20)));

}  // namespace
}  // namespace lockstep
