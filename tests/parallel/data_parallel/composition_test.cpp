// DataParallel within ranks, and DistributedDataParallel around it.

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "training.h"

namespace lockstep {
namespace {

using testing_data_parallel::expect_same_state;
using testing_data_parallel::train;
using testing_data_parallel::twin;
using torch::Tensor;

/// Is a module whose own forward is divided over places.
class DividedImpl : public torch::nn::Module {
 public:
  explicit DividedImpl(const torch::nn::Linear& linear)
      : linear_(register_module("linear", linear)), parallel_(linear, cpu_places(2)) {}

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
    train(
        *net, [&](const Tensor& input) { return model(input); }, inputs.chunk(kRanks)[rank],
        targets.chunk(kRanks)[rank], 5, 0.1);
  });
  train(
      *serial, [&](const Tensor& input) { return serial->forward(input).tanh(); }, inputs, targets,
      5, 0.1);
  for (const auto& net : nets) expect_same_state(*net, *serial);
}

}  // namespace
}  // namespace lockstep
