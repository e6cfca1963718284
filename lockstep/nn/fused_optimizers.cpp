#include "lockstep/nn/fused_optimizers.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DispatchKeySet.h>

#include "lockstep/core/error.h"
#include "lockstep/device/parameters.h"

namespace lockstep::nn {
namespace {

using torch::Tensor;
using torch::optim::OptimizerParamState;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;
using States = ska::flat_hash_map<void*, std::unique_ptr<OptimizerParamState>>;

/// The arguments of one call of a fused kernel, which takes parameters of one device and one type
/// only; the lists run in parallel.
struct KernelCall {
  std::vector<Tensor> parameters, gradients, steps;
  std::array<std::vector<Tensor>, 3> moments;
  std::int64_t last_steps = 0;  ///< of the last parameter, where the host counts them
};

using KernelCalls = std::vector<KernelCall>;

bool has_kernels(c10::DispatchKey key) {
  const auto has = [&](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").hasComputedKernelForDispatchKey(
        key);
  };
  return has("aten::_fused_sgd_") && has("aten::_fused_adam_") && has("aten::_fused_adamw_");
}

bool is_like(const Tensor& parameter, const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == parameter.scalar_type() && tensor.device() == parameter.device() &&
         tensor.sizes() == parameter.sizes() && !tensor.is_neg();
}

bool is_in_same_order(const Tensor& a, const Tensor& b) {
  for (std::int64_t dimension = 0; dimension < a.dim(); ++dimension) {
    // A dimension of one element never moves, whatever its stride says.
    if (a.size(dimension) > 1 && a.stride(dimension) != b.stride(dimension)) return false;
  }
  return true;
}

// The kernels walk parameters, gradients and moments as flat arrays and never look at strides.
Tensor in_order_of(const Tensor& parameter, const Tensor& tensor) {
  if (is_in_same_order(parameter, tensor)) return tensor;
  return at::empty_like(parameter).copy_(tensor);
}

// A dense tensor's elements in the order of its memory. LibTorch's Adam would copy every tensor
// that is not contiguous, such as a channels-last weight, only to walk the original.
Tensor flat(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.as_strided({tensor.numel()}, {1});
}

// Adds a parameter, its gradient and its moments to the call that can take them.
KernelCall& add_parameter(
    KernelCalls& calls, const Tensor& parameter, const std::vector<Tensor*>& moments) {
  const auto fits = [&](const KernelCall& call) {
    const Tensor& other = call.parameters.front();
    return other.device() == parameter.device() && other.scalar_type() == parameter.scalar_type();
  };
  auto call = std::find_if(calls.begin(), calls.end(), fits);
  if (call == calls.end()) call = calls.emplace(calls.end());
  call->parameters.push_back(flat(parameter));
  call->gradients.push_back(flat(in_order_of(parameter, parameter.grad())));
  for (std::size_t i = 0; i < moments.size(); ++i) {
    *moments[i] = in_order_of(parameter, *moments[i]);
    call->moments[i].push_back(flat(*moments[i]));
  }
  return *call;
}

// Where the call computes; nothing if it is undefined: the step is made.
std::optional<Tensor> skip_for(const KernelCall& call, const Tensor& skip) {
  if (!skip.defined()) return std::nullopt;
  return skip.to(call.parameters.front().device());
}

/// What each optimizer's kernel needs: its moments, which are not defined where an option has come
/// that needs more of them, and its calls; and whether a step of LibTorch's counts a version, so
/// that a backward through what the old parameters computed is refused.
template <typename Optimizer>
struct FusedKind;

template <>
struct FusedKind<torch::optim::SGD> {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;

  static constexpr const char* kName = "SGD";

  static constexpr bool kCountsVersions = false;

  static bool can_skip(const Options& options) { return options.dampening() == 0; }
  static bool takes_sparse(const Options& options) { return options.weight_decay() == 0; }

  static auto moments(auto& state, const Options& options) {
    std::vector all{&state.momentum_buffer()};
    if (options.momentum() == 0) all.clear();
    return all;
  }

  // The first step of a parameter fills its momentum with the plain gradient, so such a parameter
  // cannot share a call with the others. One that may be skipped adds to a momentum of zeros
  // instead: the same values, unless there is dampening.
  static void run(const std::vector<Tensor>& parameters, States& states, const Options& options,
      const Tensor& skip) {
    KernelCalls first, later;
    for (const Tensor& parameter : parameters) {
      if (options.momentum() == 0) {
        add_parameter(first, parameter, {});
        continue;
      }
      auto& state = states[parameter.unsafeGetTensorImpl()];
      const bool is_first = !state && !skip.defined();
      if (!state) {
        auto fresh = std::make_unique<State>();
        fresh->momentum_buffer(is_first ? at::empty_like(parameter) : at::zeros_like(parameter));
        state = std::move(fresh);
      }
      add_parameter(
          is_first ? first : later, parameter, moments(static_cast<State&>(*state), options));
    }
    for (KernelCalls* calls : {&first, &later}) {
      for (KernelCall& call : *calls)
        at::_fused_sgd_(call.parameters, call.gradients, call.moments[0], options.weight_decay(),
            options.momentum(), options.lr(), options.dampening(), options.nesterov(),
            /*maximize=*/false, /*is_first_step=*/calls == &first && options.momentum() != 0,
            std::nullopt, skip_for(call, skip));
    }
  }
};

/// A state whose steps the device counts.
template <typename State>
struct Counted final : State, StepsOnDevice {
  explicit Counted(const State& state) : State(state) {}
  void set_steps(std::int64_t count) override { this->step(count); }
};

constexpr auto kFusedAdam = [](const auto&... all) { at::_fused_adam_(all...); };
constexpr auto kFusedAdamW = [](const auto&... all) { at::_fused_adamw_(all...); };

template <typename OptionsOfKind, typename StateOfKind, auto kKernel>
struct AdamKind {
  using Options = OptionsOfKind;
  using State = StateOfKind;

  static constexpr bool kCountsVersions = true;

  static bool can_skip(const Options&) { return true; }
  static bool takes_sparse(const Options&) { return false; }

  static auto moments(auto& state, const Options& options) {
    std::vector all{&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()};
    if (!options.amsgrad()) all.pop_back();
    return all;
  }

  static void run(const std::vector<Tensor>& parameters, States& states, const Options& options,
      const Tensor& skip) {
    KernelCalls calls;
    for (const Tensor& parameter : parameters)
      add_adam(calls, states, parameter, options, skip.defined());
    const auto [beta1, beta2] = options.betas();
    for (KernelCall& call : calls) {
      const std::optional<Tensor> found = skip_for(call, skip);
      if (found) at::_foreach_add_(call.steps, 1);
      kKernel(call.parameters, call.gradients, call.moments[0], call.moments[1], call.moments[2],
          call.steps, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
          options.amsgrad(), /*maximize=*/false, std::nullopt, found);
      if (found) at::_foreach_sub_(call.steps, std::vector<Tensor>(call.steps.size(), *found));
    }
  }

 private:
  static void add_adam(KernelCalls& calls, States& states, const Tensor& parameter,
      const Options& options, bool may_skip) {
    auto& owned = states[parameter.unsafeGetTensorImpl()];
    if (!owned) owned = fresh(parameter, options);
    KernelCall& call =
        add_parameter(calls, parameter, moments(static_cast<State&>(*owned), options));
    const auto number = parameter.options().dtype(at::kFloat);
    const std::int64_t step = static_cast<State&>(*owned).step() + 1;
    // All parameters have made as many, as a rule.
    const bool is_same = !may_skip && std::exchange(call.last_steps, step) == step;
    call.steps.push_back(is_same    ? call.steps.back()
                         : may_skip ? steps_on_device(owned, number)
                                    : at::full({}, static_cast<double>(step), number));
    static_cast<State&>(*owned).step(step);
  }

  static std::unique_ptr<State> fresh(const Tensor& parameter, const Options& options) {
    auto state = std::make_unique<State>();
    for (Tensor* moment : moments(*state, options)) *moment = at::zeros_like(parameter);
    return state;
  }

  // Returns the count that the device keeps, which the host's follows.
  static Tensor steps_on_device(
      std::unique_ptr<OptimizerParamState>& state, const at::TensorOptions& options) {
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
};

template <>
struct FusedKind<torch::optim::Adam>
    : AdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState, kFusedAdam> {
  static constexpr const char* kName = "Adam";
};

template <>
struct FusedKind<torch::optim::AdamW>
    : AdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState, kFusedAdamW> {
  static constexpr const char* kName = "AdamW";
};

template <typename Base>
const auto& options_of(const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const typename FusedKind<Base>::Options&>(group.options());
}

template <typename Base>
bool is_fusable(const Tensor& parameter, const States& states,
    const typename FusedKind<Base>::Options& options) {
  const bool has_kernel = parameter.is_cpu() || parameter.is_cuda() ||
                          has_kernels(c10::highestPriorityBackendTypeId(parameter.key_set()));
  if (!has_kernel || !parameter.is_floating_point() || !parameter.is_non_overlapping_and_dense() ||
      !is_like(parameter, parameter.grad()))
    return false;
  const auto found = states.find(parameter.unsafeGetTensorImpl());
  if (found == states.end() || !found->second) return true;
  using State = typename FusedKind<Base>::State;
  return std::ranges::all_of(
      FusedKind<Base>::moments(static_cast<const State&>(*found->second), options),
      [&](const Tensor* moment) { return is_like(parameter, *moment); });
}

template <typename Base>
bool are_fusable(const Groups& groups, const States& states) {
  return std::ranges::all_of(groups, [&](const auto& group) {
    return std::ranges::all_of(group.params(), [&](const Tensor& parameter) {
      return !parameter.grad().defined() ||
             is_fusable<Base>(parameter, states, options_of<Base>(group));
    });
  });
}

template <typename Base>
void run_kernel(const Groups& groups, States& states, const Tensor& skip) {
  for (const auto& group : groups) {
    std::vector<Tensor> trained;
    std::ranges::copy_if(group.params(), std::back_inserter(trained),
        [](const Tensor& parameter) { return parameter.grad().defined(); });
    FusedKind<Base>::run(trained, states, options_of<Base>(group), skip);
    if constexpr (FusedKind<Base>::kCountsVersions)
      for (const Tensor& parameter : trained) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

template <typename Base>
void check_sparse(const Groups& groups) {
  for (const auto& group : groups) {
    for (const Tensor& parameter : group.params())
      check(!parameter.grad().defined() || !parameter.grad().is_sparse() ||
                FusedKind<Base>::takes_sparse(options_of<Base>(group)),
          FusedKind<Base>::kName, ": a parameter of shape ", parameter.sizes(),
          " has a sparse gradient, which only SGD without weight decay takes; use that, or an "
          "embedding that is not sparse");
  }
}

}  // namespace

template <typename Base>
Tensor FusedOptimizer<Base>::step(torch::optim::Optimizer::LossClosure closure) {
  Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_gradients;
  settle_steps(*this);
  list_once(this->param_groups_);
  if (are_fusable<Base>(this->param_groups_, this->state_)) {
    run_kernel<Base>(this->param_groups_, this->state_, {});
  } else {
    check_sparse<Base>(this->param_groups_);
    Base::step();
  }
  return loss;
}

template <typename Base>
void FusedOptimizer<Base>::save(torch::serialize::OutputArchive& archive) const {
  settle_steps(*this);
  Base::save(archive);
}

template <typename Base>
bool FusedOptimizer<Base>::can_skip() const {
  return are_fusable<Base>(this->param_groups_, this->state_) &&
         std::ranges::all_of(this->param_groups_,
             [](const auto& group) { return FusedKind<Base>::can_skip(options_of<Base>(group)); });
}

template <typename Base>
void FusedOptimizer<Base>::step_unless(const Tensor& skip) {
  const at::NoGradGuard no_gradients;
  list_once(this->param_groups_);
  check(can_skip(), FusedKind<Base>::kName,
      ": step_unless() cannot take a parameter, its gradient, its moments or the options; call "
      "step()");
  run_kernel<Base>(this->param_groups_, this->state_, skip);
}

template class FusedOptimizer<torch::optim::SGD>;
template class FusedOptimizer<torch::optim::Adam>;
template class FusedOptimizer<torch::optim::AdamW>;

}  // namespace lockstep::nn
