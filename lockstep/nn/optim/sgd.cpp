#include "lockstep/nn/optim/sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/nn/optim/kernel_arguments.h"

namespace lockstep::nn {
namespace {

using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

// The first step of a parameter fills its momentum with the plain gradient, so such a parameter
// cannot share a call with the others.
struct GroupCalls {
  KernelCalls first, later;
};

void add(GroupCalls& calls, States& states, const at::Tensor& parameter, bool with_momentum) {
  if (!with_momentum) {
    calls.first.add(parameter);
    return;
  }
  auto& state = states[parameter.unsafeGetTensorImpl()];
  const bool is_first = !state;
  if (is_first) {
    auto fresh = std::make_unique<torch::optim::SGDParamState>();
    fresh->momentum_buffer(at::empty_like(parameter));
    state = std::move(fresh);
  }
  auto& call = (is_first ? calls.first : calls.later).add(parameter);
  call.moments.push_back(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer());
}

void run(KernelCalls& calls, const torch::optim::SGDOptions& options, bool is_first) {
  for (auto& call : calls) {
    at::_fused_sgd_(
        call.parameters, call.gradients, call.moments, options.weight_decay(), options.momentum(),
        options.lr(), options.dampening(), options.nesterov(),
        /*maximize=*/false, is_first);
  }
}

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = loss_of(closure);
  if (!are_fusable(param_groups_)) {
    torch::optim::SGD::step();
    return loss;
  }
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    GroupCalls calls;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) add(calls, state_, parameter, options.momentum() != 0);
    }
    run(calls.first, options, true);
    run(calls.later, options, false);
  }
  return loss;
}

}  // namespace lockstep::nn
