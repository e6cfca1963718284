#include "lockstep/nn/fused_optimizers.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep::nn {
namespace {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

bool is_fusable(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  return parameter.is_floating_point() && parameter.is_non_overlapping_and_dense() &&
         (parameter.is_cpu() || parameter.is_cuda()) && gradient.layout() == at::kStrided &&
         gradient.scalar_type() == parameter.scalar_type() &&
         gradient.device() == parameter.device();
}

// Whether LibTorch's kernels can take every parameter that has a gradient.
bool are_fusable(const Groups& groups) {
  for (const auto& group : groups) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined() && !is_fusable(parameter)) return false;
    }
  }
  return true;
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

at::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode with_gradients(true);
  return closure();
}

/// The arguments of one kernel call; the lists run in parallel.
struct KernelArguments {
  std::vector<at::Tensor> parameters, gradients, moments, second_moments, largest_moments, steps;
};

using KernelCalls = std::vector<KernelArguments>;

// A call takes parameters of one device and one type only.
KernelArguments& add(KernelCalls& calls, const at::Tensor& parameter) {
  const auto fits = [&](const KernelArguments& call) {
    const auto& other = call.parameters.front();
    return other.device() == parameter.device() && other.scalar_type() == parameter.scalar_type();
  };
  auto call = std::find_if(calls.begin(), calls.end(), fits);
  if (call == calls.end()) call = calls.emplace(calls.end());
  call->parameters.push_back(parameter);
  call->gradients.push_back(gradient_like(parameter));
  return *call;
}

// The first step of a parameter fills its momentum with the plain gradient, so such a parameter
// cannot share a call with the others.
struct SgdCalls {
  KernelCalls first, later;
};

void add_sgd(SgdCalls& calls, States& states, const at::Tensor& parameter, bool with_momentum) {
  if (!with_momentum) {
    add(calls.first, parameter);
    return;
  }
  auto& state = states[parameter.unsafeGetTensorImpl()];
  const bool is_first = !state;
  if (is_first) {
    auto fresh = std::make_unique<torch::optim::SGDParamState>();
    fresh->momentum_buffer(at::empty_like(parameter));
    state = std::move(fresh);
  }
  auto& call = add(is_first ? calls.first : calls.later, parameter);
  call.moments.push_back(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer());
}

void run_sgd(KernelCalls& calls, const torch::optim::SGDOptions& options, bool is_first) {
  for (auto& call : calls) {
    at::_fused_sgd_(call.parameters, call.gradients, call.moments, options.weight_decay(),
        options.momentum(), options.lr(), options.dampening(), options.nesterov(),
        /*maximize=*/false, is_first);
  }
}

template <typename State>
State& adam_state_of(States& states, const at::Tensor& parameter, bool amsgrad) {
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
void add_adam(KernelCalls& calls, States& states, const at::Tensor& parameter, bool amsgrad) {
  auto& state = adam_state_of<State>(states, parameter, amsgrad);
  state.step(state.step() + 1);
  auto& call = add(calls, parameter);
  call.moments.push_back(state.exp_avg());
  call.second_moments.push_back(state.exp_avg_sq());
  if (amsgrad) call.largest_moments.push_back(state.max_exp_avg_sq());
  const auto step = static_cast<double>(state.step());
  call.steps.push_back(at::full({}, step, parameter.options().dtype(at::kFloat)));
}

template <typename State, typename Options>
void step_adam(Groups& groups, States& states, const auto& kernel) {
  for (auto& group : groups) {
    const auto& options = static_cast<const Options&>(group.options());
    const auto [beta1, beta2] = options.betas();
    KernelCalls calls;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) add_adam<State>(calls, states, parameter, options.amsgrad());
    }
    for (auto& call : calls) {
      kernel(call.parameters, call.gradients, call.moments, call.second_moments,
          call.largest_moments, call.steps, options.lr(), beta1, beta2, options.weight_decay(),
          options.eps(), options.amsgrad(), /*maximize=*/false);
    }
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
    SgdCalls calls;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) add_sgd(calls, state_, parameter, options.momentum() != 0);
    }
    run_sgd(calls.first, options, true);
    run_sgd(calls.later, options, false);
  }
  return loss;
}

torch::Tensor Adam::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = loss_of(closure);
  if (are_fusable(param_groups_)) {
    step_adam<torch::optim::AdamParamState, torch::optim::AdamOptions>(
        param_groups_, state_, [](const auto&... all) { at::_fused_adam_(all...); });
  } else {
    torch::optim::Adam::step();
  }
  return loss;
}

torch::Tensor AdamW::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = loss_of(closure);
  if (are_fusable(param_groups_)) {
    step_adam<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
        param_groups_, state_, [](const auto&... all) { at::_fused_adamw_(all...); });
  } else {
    torch::optim::AdamW::step();
  }
  return loss;
}

}  // namespace lockstep::nn
