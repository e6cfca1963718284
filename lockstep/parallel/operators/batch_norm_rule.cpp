#include "lockstep/parallel/operators/batch_norm_rule.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/library.h>

namespace lockstep {
namespace {

thread_local BatchNormRule* current_rule = nullptr;

torch::Tensor given(const std::optional<torch::Tensor>& tensor) {
  return tensor.value_or(torch::Tensor());
}

torch::Tensor apply_rule(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
    const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
    const std::optional<torch::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  const OperatorRulesOff off;
  if (current_rule == nullptr || !training) {
    return at::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  }
  return current_rule->batch_norm(
      {input, given(weight), given(bias), given(running_mean), given(running_var), momentum, eps});
}

// LibTorch computes an instance norm by a batch norm of [1, N * C, ...], which is no rule's.
torch::Tensor apply_rule_to_instances(const torch::Tensor& input,
    const std::optional<torch::Tensor>& weight, const std::optional<torch::Tensor>& bias,
    const std::optional<torch::Tensor>& running_mean,
    const std::optional<torch::Tensor>& running_var, bool use_input_stats, double momentum,
    double eps, bool cudnn_enabled) {
  const OperatorRulesOff off;
  if (current_rule == nullptr || !use_input_stats || !given(running_mean).defined()) {
    return at::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
        momentum, eps, cudnn_enabled);
  }
  return current_rule->instance_norm(
      {input, given(weight), given(bias), given(running_mean), given(running_var), momentum, eps});
}

std::vector<std::int64_t> dimensions_from(std::int64_t first, const torch::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t dimension = first; dimension < input.dim(); ++dimension)
    dimensions.push_back(dimension);
  return dimensions;
}

std::vector<std::int64_t> all_but_channels(const torch::Tensor& input) {
  auto dimensions = dimensions_from(2, input);
  dimensions.push_back(0);
  return dimensions;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", apply_rule);
  library.impl("instance_norm", apply_rule_to_instances);
}

torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call) {
  return at::batch_norm(call.input, call.weight, call.bias, {}, {}, true, 0, call.eps, true);
}

torch::Tensor instance_norm_without_running_statistics(const BatchNormCall& call) {
  return at::instance_norm(call.input, call.weight, call.bias, {}, {}, true, 0, call.eps, true);
}

torch::Tensor BatchNormRule::instance_norm(const BatchNormCall& call) {
  return at::instance_norm(call.input, call.weight, call.bias, call.running_mean, call.running_var,
      true, call.momentum, call.eps, true);
}

BatchNormScope::BatchNormScope(BatchNormRule& rule) : before_(std::exchange(current_rule, &rule)) {}

BatchNormScope::~BatchNormScope() { current_rule = before_; }

DeferredBatchNorm::Layer& DeferredBatchNorm::layer_of(const BatchNormCall& call, Unit unit) {
  for (Layer& layer : layers_) {
    if (layer.running_mean.is_same(call.running_mean)) return layer;
  }
  const auto zeros =
      torch::zeros(call.running_mean.sizes(), call.running_mean.options().dtype(torch::kDouble));
  return layers_.emplace_back(
      Layer{call.running_mean, call.running_var, unit, call.momentum, 0, zeros, zeros.clone()});
}

void DeferredBatchNorm::add(const BatchNormCall& call) {
  const torch::NoGradGuard no_grad;
  Layer& layer = layer_of(call, Unit::kBatch);
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

void DeferredBatchNorm::add_samples(const BatchNormCall& call) {
  const torch::NoGradGuard no_grad;
  Layer& layer = layer_of(call, Unit::kSample);
  layer.momentum = call.momentum;
  const auto count = static_cast<double>(call.input.size(0));
  auto [variance, mean] =
      at::var_mean(call.input.to(torch::kDouble), dimensions_from(2, call.input), true);
  layer.squares += variance.sum(0);
  layer.count += count;
  layer.mean += (mean.sum(0) - layer.mean * count) / layer.count;
}

torch::Tensor DeferredBatchNorm::batch_norm(const BatchNormCall& call) {
  if (call.running_mean.defined()) add(call);
  return batch_norm_without_running_statistics(call);
}

torch::Tensor DeferredBatchNorm::instance_norm(const BatchNormCall& call) {
  add_samples(call);
  return instance_norm_without_running_statistics(call);
}

// Without new versions, as LibTorch's batch norm.
void DeferredBatchNorm::commit() {
  const torch::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  for (const Layer& layer : layers_) {
    const auto type = layer.running_mean.scalar_type();
    const double divisor = layer.unit == Unit::kBatch ? layer.count - 1 : layer.count;
    layer.running_mean.mul_(1 - layer.momentum).add_(layer.mean.to(type), layer.momentum);
    layer.running_var.mul_(1 - layer.momentum)
        .add_((layer.squares / divisor).to(type), layer.momentum);
  }
  layers_.clear();
}

}  // namespace lockstep
