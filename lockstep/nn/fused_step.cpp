#include "lockstep/nn/fused_step.h"

#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DispatchKeySet.h>

namespace lockstep::nn {
namespace {

bool has_kernels(c10::DispatchKey key) {
  const auto has = [&](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").hasComputedKernelForDispatchKey(
        key);
  };
  return has("aten::_fused_sgd_") && has("aten::_fused_adam_") && has("aten::_fused_adamw_");
}

bool is_fusable(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  return parameter.is_floating_point() && parameter.is_non_overlapping_and_dense() &&
         (parameter.is_cpu() || parameter.is_cuda() ||
             has_kernels(c10::highestPriorityBackendTypeId(parameter.key_set()))) &&
         gradient.layout() == at::kStrided && gradient.scalar_type() == parameter.scalar_type() &&
         gradient.device() == parameter.device();
}

bool in_same_order(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t dimension = 0; dimension < a.dim(); ++dimension) {
    // A dimension of one element never moves, whatever its stride says.
    if (a.size(dimension) > 1 && a.stride(dimension) != b.stride(dimension)) return false;
  }
  return true;
}

// The kernels walk parameter and gradient as flat arrays and never look at strides.
at::Tensor gradient_like(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  if (in_same_order(parameter, gradient)) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

}  // namespace

bool are_fusable(const OptimizerGroups& groups) {
  for (const auto& group : groups) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() && !is_fusable(parameter)) return false;
    }
  }
  return true;
}

KernelArguments& add_parameter(KernelCalls& calls, const at::Tensor& parameter) {
  const auto fits = [&](const KernelArguments& call) {
    const auto& other = call.parameters.front();
    return other.device() == parameter.device() && other.scalar_type() == parameter.scalar_type();
  };
  auto call = std::find_if(calls.begin(), calls.end(), fits);
  if (call == calls.end()) call = calls.emplace(calls.end());
  call->parameters.push_back(flat(parameter));
  call->gradients.push_back(flat(gradient_like(parameter)));
  return *call;
}

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.as_strided({tensor.numel()}, {1});
}

std::optional<at::Tensor> skip_for(const KernelArguments& call, const at::Tensor& skip) {
  if (!skip.defined()) return std::nullopt;
  return skip.to(call.parameters.front().device());
}

at::Tensor closure_loss(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_gradients(true);
  return closure();
}

}  // namespace lockstep::nn
