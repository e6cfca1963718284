#include "lockstep/nn/fused_optimizers.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/nn/fused_step.h"

namespace lockstep::nn {
namespace {

// The first step of a parameter fills its momentum with the plain gradient, so such a parameter
// cannot share a call with the others. One that may be skipped adds to a momentum of zeros instead:
// the same values, unless there is dampening.
struct SgdCalls {
  KernelCalls first = {}, later = {};
  bool from_zeros = false;
};

void add_sgd(
    SgdCalls& calls, OptimizerStates& states, const at::Tensor& parameter, bool with_momentum) {
  if (!with_momentum) {
    add_parameter(calls.first, parameter);
    return;
  }
  auto& state = states[parameter.unsafeGetTensorImpl()];
  const bool is_first = !state && !calls.from_zeros;
  if (!state) {
    auto fresh = std::make_unique<torch::optim::SGDParamState>();
    fresh->momentum_buffer(is_first ? at::empty_like(parameter) : at::zeros_like(parameter));
    state = std::move(fresh);
  }
  auto& call = add_parameter(is_first ? calls.first : calls.later, parameter);
  call.moments.push_back(flat(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer()));
}

void run_sgd(KernelCalls& calls, const torch::optim::SGDOptions& options, bool is_first,
    const at::Tensor& skip) {
  for (auto& call : calls) {
    at::_fused_sgd_(call.parameters, call.gradients, call.moments, options.weight_decay(),
        options.momentum(), options.lr(), options.dampening(), options.nesterov(),
        /*maximize=*/false, is_first, std::nullopt, skip_for(call, skip));
  }
}

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = closure_loss(closure);
  if (are_fusable(param_groups_)) {
    run_kernel({});
  } else {
    torch::optim::SGD::step();
  }
  return loss;
}

bool SGD::can_skip() const {
  const auto damps = [](const torch::optim::OptimizerParamGroup& group) {
    return static_cast<const torch::optim::SGDOptions&>(group.options()).dampening() != 0;
  };
  return are_fusable(param_groups_) &&
         std::none_of(param_groups_.begin(), param_groups_.end(), damps);
}

void SGD::step_unless(const torch::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  run_kernel(skip);
}

void SGD::run_kernel(const torch::Tensor& skip) {
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    SgdCalls calls{.from_zeros = skip.defined()};
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) add_sgd(calls, state_, parameter, options.momentum() != 0);
    }
    run_sgd(calls.first, options, true, skip);
    run_sgd(calls.later, options, false, skip);
  }
}

}  // namespace lockstep::nn
