#include "lockstep/nn/optim/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/nn/optim/kernel_arguments.h"

namespace lockstep::nn {
namespace {

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
