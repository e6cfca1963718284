#include "lockstep/train/strategy/stage_balance.h"

#include <algorithm>

#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

constexpr int kTimedPasses = 3;

// The parameters, their gradients and what the optimizer keeps of each.
double copies_of_parameters(const TrainOptions& options) {
  return 2 + state_copies(options.optimizer);
}

// A micro-batch as the stages will see it: layers cost other shares of the time in small batches.
// Zero is a number of something in any set of whole numbers.
torch::Tensor sample_of(
    const TrainOptions& options, const Layout& layout, const Task& task, torch::Device device) {
  const auto& own = task.inputs.empty() ? task.image : task.inputs.front().sizes;
  std::vector<std::int64_t> sizes = {options.batch_size / layout.micro_batches};
  sizes.insert(sizes.end(), own.begin(), own.end());
  if (!task.inputs.empty() && task.inputs.front().type == torch::kLong)
    return at::zeros(sizes, at::TensorOptions(torch::kLong).device(device));
  return at::rand(sizes, device);
}

std::vector<int> measured(const TrainOptions& options, const Layout& layout, nn::Model model,
    const Task& task, torch::Device device) {
  const nn::Autocast autocast = autocast_of(options.precision, device.type());
  const auto layers = model->layers();
  const auto sample = [&] {
    model->to(device);
    return sample_of(options, layout, task, device);
  };
  switch (options.pipeline.balance) {
    case Balance::kCount:
      return partition_by_count(layers.size(), layout.stages);
    case Balance::kSize:
      return balance_by_size(layers, sample(), layout.stages, copies_of_parameters(options));
    case Balance::kTime:
      return balance_by_time(layers, sample(), layout.stages, kTimedPasses);
  }
  return {};
}

// A cut that was measured once: measured again it might come out otherwise, and with it the random
// numbers of the stages.
std::vector<int> known_balance(const Layout& layout, const nn::Model& model) {
  std::size_t layers = 0;
  for (const int of_stage : layout.balance) layers += static_cast<std::size_t>(of_stage);
  if (layers != model->layers().size() || std::ssize(layout.balance) != layout.stages)
    throw DataError("train: the snapshot cuts the model into other stages than it has");
  return layout.balance;
}

}  // namespace

void check_stages(const TrainOptions& options, const Layout& layout, const nn::Model& model) {
  check(static_cast<std::size_t>(layout.stages) <= model->layers().size(), "train: ", options.model,
      " has ", model->layers().size(), model->layers().size() == 1 ? " layer" : " layers",
      " and cannot be cut into ", layout.stages, " stages; lower --stages",
      options.plugin.empty() ? "" : ", or make it a torch::nn::Sequential, which can be cut");
}

std::vector<int> stage_balance(const TrainOptions& options, const Layout& layout,
    const nn::Model& model, const Task& task, torch::Device device, const ProcessGroup& world) {
  check_stages(options, layout, model);
  const torch::Tensor balance = torch::zeros({layout.stages}, on_host(torch::kInt));
  if (!layout.balance.empty()) return known_balance(layout, model);
  if (world.rank() == 0) {
    const std::vector<int> own = measured(options, layout, model, task, device);
    std::copy(own.begin(), own.end(), balance.data_ptr<int>());
  }
  world.broadcast(balance, 0).wait();
  return {balance.data_ptr<int>(), balance.data_ptr<int>() + layout.stages};
}

}  // namespace lockstep
