// A net with a task of its own, whose forward gives no scores.

#include <torch/torch.h>

#include "lockstep/nn/models/plugin.h"

namespace {

using lockstep::nn::TaskBatch, lockstep::nn::TaskNet, lockstep::nn::TaskResult;

// Images as short codes and back.
struct CoderImpl : torch::nn::Module {
  torch::nn::Linear down = register_module("down", torch::nn::Linear(784, 8));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(8, 784));

  torch::Tensor forward(const torch::Tensor& images) { return down(images.flatten(1)).tanh(); }
};

// The number is measured in evaluations alone.
TaskResult coding(CoderImpl& net, const TaskBatch& batch) {
  const torch::Tensor images = batch.input().flatten(1), code = net.forward(batch.input());
  TaskResult result{.loss = torch::mse_loss(net.up(code), images) + 0.01 * code.square().mean()};
  if (!net.is_training()) result.numbers["size"] = code.abs().mean();
  return result;
}

// Of any net, by its forward.
TaskResult short_codes(const TaskNet& net, const TaskBatch& batch) {
  return {.loss = net(batch.input()).square().mean()};
}

}  // namespace

LOCKSTEP_MODEL("coder", [](std::int64_t) { return std::make_shared<CoderImpl>(); })
LOCKSTEP_TASK("coding", coding)
LOCKSTEP_TASK("short", short_codes)
