#include "work.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep::benchmark {
namespace {

constexpr std::int64_t kClasses = 1000;

// Linear layers, each with its ReLU. The first needs no gradient of its input, which is a third of
// a layer's arithmetic; half as many inputs again make it cost as much as the others.
Layers chain_of(std::int64_t width, std::int64_t depth) {
  torch::nn::Sequential net;
  for (std::int64_t layer = 0; layer < depth; ++layer) {
    net->push_back(torch::nn::Linear(layer == 0 ? width + width / 2 : width, width));
    net->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
  }
  return layers_of(net);
}

Work chain_work(const WorkSize& size, std::int64_t samples) {
  return {chain_of(size.width, size.depth),
      [](const torch::Tensor& output, const torch::Tensor& target) {
        return at::mse_loss(output, target);
      },
      torch::randn({samples, size.width + size.width / 2}), torch::randn({samples, size.width})};
}

Work net_work(const WorkSize& size, std::int64_t samples) {
  auto net = nn::make_model(size.model, kClasses);
  return {net->layers(),
      [](const torch::Tensor& output, const torch::Tensor& target) {
        return at::cross_entropy_loss(output, target);
      },
      torch::randn({samples, 3, size.image_size, size.image_size}),
      torch::randint(kClasses, {samples}, torch::kLong),
      /*is_chain=*/false};
}

}  // namespace

std::vector<int> Work::balance(int stages) const {
  if (!is_chain) return balance_by_time(layers, input.slice(0, 0, micro_batch), stages, 5);
  auto balance = partition_by_count(layers.size() / 2, stages);
  for (int& layers_of_stage : balance) layers_of_stage *= 2;
  return balance;
}

Work make_work(const WorkSize& size, int micro_batches) {
  check(size.depth >= 4 && size.depth % 4 == 0, "--depth must be a multiple of 4: ", size.depth);
  check(
      size.micro_batch >= 1 && micro_batches >= 1, "--micro-batch and --chunks must be 1 or more");
  torch::manual_seed(0);
  const std::int64_t samples = size.micro_batch * micro_batches;
  Work work = size.model == "chain" ? chain_work(size, samples) : net_work(size, samples);
  work.micro_batch = size.micro_batch;
  return work;
}

}  // namespace lockstep::benchmark
