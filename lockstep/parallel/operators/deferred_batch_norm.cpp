#include "lockstep/parallel/operators/deferred_batch_norm.h"

#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace lockstep {
namespace {

std::vector<std::int64_t> all_but_channels(const torch::Tensor& input) {
  std::vector<std::int64_t> dimensions = {0};
  for (std::int64_t dimension = 2; dimension < input.dim(); ++dimension)
    dimensions.push_back(dimension);
  return dimensions;
}

}  // namespace

DeferredBatchNorm::Layer& DeferredBatchNorm::layer_of(const BatchNormCall& call) {
  for (Layer& layer : layers_) {
    if (layer.running_mean.is_same(call.running_mean)) return layer;
  }
  const auto zeros =
      torch::zeros(call.running_mean.sizes(), call.running_mean.options().dtype(torch::kDouble));
  return layers_.emplace_back(
      Layer{call.running_mean, call.running_var, call.momentum, 0, zeros, zeros.clone()});
}

torch::Tensor DeferredBatchNorm::batch_norm(const BatchNormCall& call) {
  if (call.running_mean.defined()) {
    const torch::NoGradGuard no_grad;
    Layer& layer = layer_of(call);
    layer.momentum = call.momentum;
    const double count =
        static_cast<double>(call.input.numel()) / static_cast<double>(call.input.size(1));
    auto [variance, mean] =
        at::var_mean(call.input.to(torch::kDouble), all_but_channels(call.input), false);
    const auto delta = mean - layer.mean;
    const double total = layer.count + count;
    layer.squares += variance * count + delta.square() * (layer.count * count / total);
    layer.mean += delta * (count / total);
    layer.count = total;
  }
  return batch_norm_without_running_statistics(call);
}

void DeferredBatchNorm::commit() {
  const torch::NoGradGuard no_grad;
  for (const Layer& layer : layers_) {
    const auto type = layer.running_mean.scalar_type();
    layer.running_mean.mul_(1 - layer.momentum).add_(layer.mean.to(type), layer.momentum);
    layer.running_var.mul_(1 - layer.momentum)
        .add_((layer.squares / (layer.count - 1)).to(type), layer.momentum);
  }
  layers_.clear();
}

}  // namespace lockstep
