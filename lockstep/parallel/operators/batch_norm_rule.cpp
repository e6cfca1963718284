#include "lockstep/parallel/operators/batch_norm_rule.h"

#include <utility>

#include <ATen/ops/batch_norm.h>
#include <torch/library.h>

namespace lockstep {
namespace {

thread_local BatchNormRule* current_rule = nullptr;

torch::Tensor apply_rule(
    const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
    const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
    const std::optional<torch::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  const OperatorRulesOff off;
  if (current_rule == nullptr || !training) {
    return at::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  }
  const auto given = [](const std::optional<torch::Tensor>& tensor) {
    return tensor.value_or(torch::Tensor());
  };
  return current_rule->batch_norm(
      {input, given(weight), given(bias), given(running_mean), given(running_var), momentum, eps});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", apply_rule);
}

torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call) {
  return at::batch_norm(call.input, call.weight, call.bias, {}, {}, true, 0, call.eps, true);
}

BatchNormScope::BatchNormScope(BatchNormRule& rule) : before_(std::exchange(current_rule, &rule)) {}

BatchNormScope::~BatchNormScope() { current_rule = before_; }

}  // namespace lockstep
