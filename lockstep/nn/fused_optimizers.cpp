#include "lockstep/nn/fused_optimizers.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep::nn {
namespace {

bool is_fusable(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  return parameter.is_floating_point() && parameter.is_non_overlapping_and_dense() &&
         (parameter.is_cpu() || parameter.is_cuda()) && gradient.layout() == at::kStrided &&
         gradient.scalar_type() == parameter.scalar_type() &&
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

using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

template <typename State>
State& state_of(States& states, const at::Tensor& parameter, bool amsgrad) {
  auto& state = states[parameter.unsafeGetTensorImpl()];
  if (!state) {
    auto fresh = std::make_unique<State>();
    fresh->exp_avg(at::zeros_like(parameter));
    fresh->exp_avg_sq(at::zeros_like(parameter));
    if (amsgrad) fresh->max_exp_avg_sq(at::zeros_like(parameter));
    state = std::move(fresh);
  }
  return static_cast<State&>(*state);
}

template <typename State>
void add(KernelCalls& calls, States& states, const at::Tensor& parameter, bool amsgrad) {
  auto& state = state_of<State>(states, parameter, amsgrad);
  state.step(state.step() + 1);
  auto& call = calls.add(parameter);
  call.moments.push_back(state.exp_avg());
  call.second_moments.push_back(state.exp_avg_sq());
  if (amsgrad) call.largest_moments.push_back(state.max_exp_avg_sq());
  const auto step = static_cast<double>(state.step());
  call.steps.push_back(at::full({}, step, parameter.options().dtype(at::kFloat)));
}

template <typename State, typename Options, typename Kernel>
void step_group(torch::optim::OptimizerParamGroup& group, States& states, const Kernel& kernel) {
  const auto& options = static_cast<const Options&>(group.options());
  KernelCalls calls;
  for (const auto& parameter : group.params()) {
    if (parameter.grad().defined()) add<State>(calls, states, parameter, options.amsgrad());
  }
  for (auto& call : calls) kernel(call, options);
}

}  // namespace

bool are_fusable(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (const auto& group : groups) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() && !is_fusable(parameter)) return false;
    }
  }
  return true;
}

at::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_gradients(true);
  return closure();
}

KernelArguments& KernelCalls::add(const at::Tensor& parameter) {
  const auto fits = [&](const KernelArguments& call) {
    const auto& other = call.parameters.front();
    return other.device() == parameter.device() && other.scalar_type() == parameter.scalar_type();
  };
  auto call = std::find_if(calls_.begin(), calls_.end(), fits);
  if (call == calls_.end()) call = calls_.emplace(calls_.end());
  call->parameters.push_back(parameter);
  call->gradients.push_back(gradient_like(parameter));
  return *call;
}

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

torch::Tensor Adam::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = loss_of(closure);
  if (!are_fusable(param_groups_)) {
    torch::optim::Adam::step();
    return loss;
  }
  for (auto& group : param_groups_) {
    step_group<torch::optim::AdamParamState, torch::optim::AdamOptions>(
        group, state_, [](KernelArguments& call, const torch::optim::AdamOptions& options) {
          const auto [beta1, beta2] = options.betas();
          at::_fused_adam_(
              call.parameters, call.gradients, call.moments, call.second_moments,
              call.largest_moments, call.steps, options.lr(), beta1, beta2, options.weight_decay(),
              options.eps(), options.amsgrad(),
              /*maximize=*/false);
        });
  }
  return loss;
}

torch::Tensor AdamW::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = loss_of(closure);
  if (!are_fusable(param_groups_)) {
    torch::optim::AdamW::step();
    return loss;
  }
  for (auto& group : param_groups_) {
    step_group<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
        group, state_, [](KernelArguments& call, const torch::optim::AdamWOptions& options) {
          const auto [beta1, beta2] = options.betas();
          at::_fused_adamw_(
              call.parameters, call.gradients, call.moments, call.second_moments,
              call.largest_moments, call.steps, options.lr(), beta1, beta2, options.weight_decay(),
              options.eps(), options.amsgrad(),
              /*maximize=*/false);
        });
  }
  return loss;
}

}  // namespace lockstep::nn
