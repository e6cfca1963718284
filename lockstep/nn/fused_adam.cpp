#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/nn/fused_step.h"

namespace lockstep::nn {
namespace {

/// A state whose steps the device counts.
template <typename State>
struct Counted final : State, StepsOnDevice {
  explicit Counted(const State& state) : State(state) {}
  void set_steps(std::int64_t count) override { this->step(count); }
};

template <typename State>
State& adam_state_of(OptimizerStates& states, const at::Tensor& parameter, bool amsgrad) {
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

// Returns the count that the device keeps, which the host's follows.
template <typename State>
at::Tensor steps_on_device(
    std::unique_ptr<torch::optim::OptimizerParamState>& state, const at::TensorOptions& options) {
  auto* counted = dynamic_cast<Counted<State>*>(state.get());
  if (counted == nullptr) {
    auto fresh = std::make_unique<Counted<State>>(static_cast<const State&>(*state));
    counted = fresh.get();
    state = std::move(fresh);
  }
  if (!counted->made.defined())
    counted->made = at::full({}, static_cast<double>(counted->step()), options);
  return counted->made;
}

template <typename State>
void add_adam(KernelCalls& calls, OptimizerStates& states, const at::Tensor& parameter,
    bool amsgrad, bool may_skip) {
  auto& call = add_parameter(calls, parameter);
  auto& state = adam_state_of<State>(states, parameter, amsgrad);
  call.moments.push_back(flat(state.exp_avg()));
  call.second_moments.push_back(flat(state.exp_avg_sq()));
  if (amsgrad) call.largest_moments.push_back(flat(state.max_exp_avg_sq()));
  const auto options = parameter.options().dtype(at::kFloat);
  const std::int64_t step = state.step() + 1;
  if (!may_skip) {
    state.step(step);
    call.steps.push_back(at::full({}, static_cast<double>(step), options));
    return;
  }
  auto& owned = states[parameter.unsafeGetTensorImpl()];
  call.steps.push_back(steps_on_device<State>(owned, options));
  static_cast<State&>(*owned).step(step);
}

template <typename Options>
void run_adam(
    KernelArguments& call, const Options& options, const auto& kernel, const at::Tensor& skip) {
  const auto [beta1, beta2] = options.betas();
  const std::optional<at::Tensor> found = skip_for(call, skip);
  if (found) at::_foreach_add_(call.steps, 1);
  kernel(call.parameters, call.gradients, call.moments, call.second_moments, call.largest_moments,
      call.steps, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
      options.amsgrad(), /*maximize=*/false, std::nullopt, found);
  if (found) at::_foreach_sub_(call.steps, std::vector<at::Tensor>(call.steps.size(), *found));
}

template <typename State, typename Options>
void step_adam(OptimizerGroups& groups, OptimizerStates& states, const auto& kernel,
    const at::Tensor& skip = {}) {
  for (auto& group : groups) {
    const auto& options = static_cast<const Options&>(group.options());
    KernelCalls calls;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined())
        add_adam<State>(calls, states, parameter, options.amsgrad(), skip.defined());
    }
    for (auto& call : calls) run_adam(call, options, kernel, skip);
  }
}

constexpr auto kFusedAdam = [](const auto&... all) { at::_fused_adam_(all...); };
constexpr auto kFusedAdamW = [](const auto&... all) { at::_fused_adamw_(all...); };

}  // namespace

torch::Tensor Adam::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = closure_loss(closure);
  settle_steps(*this);
  if (are_fusable(param_groups_)) {
    step_adam<torch::optim::AdamParamState, torch::optim::AdamOptions>(
        param_groups_, state_, kFusedAdam);
  } else {
    torch::optim::Adam::step();
  }
  return loss;
}

void Adam::save(torch::serialize::OutputArchive& archive) const {
  settle_steps(*this);
  torch::optim::Adam::save(archive);
}

bool Adam::can_skip() const { return are_fusable(param_groups_); }

void Adam::step_unless(const torch::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  step_adam<torch::optim::AdamParamState, torch::optim::AdamOptions>(
      param_groups_, state_, kFusedAdam, skip);
}

torch::Tensor AdamW::step(LossClosure closure) {
  const at::NoGradGuard no_gradients;
  auto loss = closure_loss(closure);
  settle_steps(*this);
  if (are_fusable(param_groups_)) {
    step_adam<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
        param_groups_, state_, kFusedAdamW);
  } else {
    torch::optim::AdamW::step();
  }
  return loss;
}

void AdamW::save(torch::serialize::OutputArchive& archive) const {
  settle_steps(*this);
  torch::optim::AdamW::save(archive);
}

bool AdamW::can_skip() const { return are_fusable(param_groups_); }

void AdamW::step_unless(const torch::Tensor& skip) {
  const at::NoGradGuard no_gradients;
  step_adam<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(
      param_groups_, state_, kFusedAdamW, skip);
}

}  // namespace lockstep::nn
