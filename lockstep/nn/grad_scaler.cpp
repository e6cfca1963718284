#include "lockstep/nn/grad_scaler.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep::nn {
namespace {

// The kernel takes tensors of one device and one type at a time.
using Kind = std::pair<std::string, torch::ScalarType>;
using GradientsByKind = std::map<Kind, std::vector<torch::Tensor>>;

torch::Tensor dense_part(const torch::Tensor& parameter) {
  torch::Tensor gradient = parameter.grad();
  if (!gradient.is_sparse()) return gradient;
  if (gradient.scalar_type() == torch::kHalf) {
    gradient = gradient.coalesce();
    parameter.mutable_grad() = gradient;
  }
  return gradient._values();
}

GradientsByKind gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::unordered_set<const at::TensorImpl*> seen;
  GradientsByKind gradients;
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    torch::Tensor dense = dense_part(parameter);
    gradients[{dense.device().str(), dense.scalar_type()}].push_back(std::move(dense));
  }
  return gradients;
}

// Held as float32, like PyTorch's.
void check_scale(double scale) {
  check(std::isfinite(static_cast<float>(scale)) && static_cast<float>(scale) > 0,
      "GradScaler: the scale must be a float32 above 0: ", scale);
}

void check_rule(double growth_factor, double backoff_factor, std::int64_t growth_interval) {
  check(std::isfinite(growth_factor) && growth_factor > 1,
      "GradScaler: the growth factor must be above 1: ", growth_factor);
  check(backoff_factor > 0 && backoff_factor < 1,
      "GradScaler: the backoff factor must be above 0 and below 1: ", backoff_factor);
  check(0 < growth_interval && growth_interval <= std::numeric_limits<int>::max(),
      "GradScaler: the growth interval must be at least 1 step and fit into 32 bits: ",
      growth_interval);
}

std::vector<torch::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

void check_types(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor& gradient = parameter.grad();
    check(!gradient.defined() || gradient.scalar_type() != torch::kHalf,
        "GradScaler: unscale_() and step() take no float16 gradients, such as one of ",
        parameter.sizes(), "; keep the parameters in float32 and compute under Autocast");
  }
}

}  // namespace

UnscaledGradients unscale_gradients(const std::vector<torch::Tensor>& parameters, double factor) {
  const at::NoGradGuard no_gradients;
  UnscaledGradients result;
  std::map<std::string, torch::Tensor> found;  // one value a device has to be waited for
  for (auto& [kind, gradients] : gradients_of(parameters)) {
    const auto options = at::TensorOptions(torch::kFloat).device(gradients.front().device());
    torch::Tensor& found_here = found.try_emplace(kind.first, at::zeros({}, options)).first->second;
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, found_here, at::full({}, factor, options));
    result.any = true;
  }
  for (const auto& [device, count] : found) result.finite &= count.item<float>() == 0;
  return result;
}

GradScaler::GradScaler(GradScalerOptions options, ProcessGroup group)
    : options_(options),
      group_(std::move(group)),
      scale_(static_cast<float>(options_.init_scale())) {
  if (!is_enabled()) return;
  check_scale(options_.init_scale());
  check_rule(options_.growth_factor(), options_.backoff_factor(), options_.growth_interval());
}

// By a tensor of float32, as PyTorch does: the product of a float16 loss is float32 then.
torch::Tensor GradScaler::scale(const torch::Tensor& outputs) {
  if (!is_enabled()) return outputs;
  has_scaled_ = true;
  return outputs * at::full({}, scale_, at::TensorOptions(torch::kFloat).device(outputs.device()));
}

std::vector<torch::Tensor> GradScaler::scale(const std::vector<torch::Tensor>& outputs) {
  std::vector<torch::Tensor> scaled;
  for (const torch::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!is_enabled()) return;
  const std::vector<torch::Tensor> parameters = parameters_of(optimizer);
  const Stage stage = stage_of(optimizer);
  check(stage != Stage::kUnscaled,
      "GradScaler: unscale_() was called twice for one optimizer since the last update()");
  check(stage != Stage::kStepped,
      "GradScaler: unscale_() was called after step(); it belongs between backward() and step()");
  check_types(parameters);
  check_scaled();
  const UnscaledGradients gradients = unscale_gradients(parameters, 1.0 / scale_);
  const Flags flags = agreed({gradients.any, !gradients.finite});
  iterations_[&optimizer] = {
      .stage = Stage::kUnscaled, .any_gradient = flags[0], .overflowed = flags[1]};
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!is_enabled()) {
    optimizer.step();
    return true;
  }
  check(stage_of(optimizer) != Stage::kStepped,
      "GradScaler: step() was called twice for one optimizer since the last update()");
  if (stage_of(optimizer) == Stage::kReady) unscale_(optimizer);
  Iteration& iteration = iterations_.at(&optimizer);
  check(iteration.any_gradient,
      "GradScaler: step() found no gradient of this optimizer's parameters; call backward() first, "
      "or do not call step() for it");
  if (!iteration.overflowed) optimizer.step();
  iteration.stage = Stage::kStepped;
  return !iteration.overflowed;
}

void GradScaler::update(const std::optional<double>& new_scale) {
  if (!is_enabled()) return;
  if (new_scale) {
    check_scale(*new_scale);
    scale_ = static_cast<float>(*new_scale);
  } else {
    adapt_scale();
  }
  iterations_.clear();
}

// The operator also keeps the scale where it would become infinite.
void GradScaler::adapt_scale() {
  bool any_gradient = false, overflowed = false;
  for (const auto& [optimizer, iteration] : iterations_) {
    any_gradient |= iteration.any_gradient;
    overflowed |= iteration.overflowed;
  }
  check(any_gradient,
      "GradScaler: update() was called before any step() or unscale_() of this iteration");
  torch::Tensor scale = at::full({}, scale_, on_host(torch::kFloat));
  torch::Tensor growth_tracker = at::full({}, growth_tracker_, on_host(torch::kInt));
  at::_amp_update_scale_(scale, growth_tracker,
      at::full({}, overflowed ? 1 : 0, on_host(torch::kFloat)), options_.growth_factor(),
      options_.backoff_factor(), options_.growth_interval());
  scale_ = scale.item<float>();
  growth_tracker_ = growth_tracker.item<int>();
}

std::optional<GradScalerState> GradScaler::state() const {
  if (!is_enabled()) return std::nullopt;
  return GradScalerState{.scale = scale_,
      .growth_factor = options_.growth_factor(),
      .backoff_factor = options_.backoff_factor(),
      .growth_interval = options_.growth_interval(),
      .growth_tracker = growth_tracker_};
}

void GradScaler::load(const std::optional<GradScalerState>& state) {
  if (!is_enabled()) return;
  check(
      state.has_value(), "GradScaler: the state to load is that of a scaler that was not enabled");
  check_scale(state->scale);
  check_rule(state->growth_factor, state->backoff_factor, state->growth_interval);
  check(0 <= state->growth_tracker && state->growth_tracker <= state->growth_interval,
      "GradScaler: the growth tracker of a state lies between 0 and its growth interval, ",
      state->growth_interval, ": ", state->growth_tracker);
  scale_ = static_cast<float>(state->scale);
  growth_tracker_ = state->growth_tracker;
  options_.growth_factor(state->growth_factor)
      .backoff_factor(state->backoff_factor)
      .growth_interval(state->growth_interval);
}

GradScaler::Stage GradScaler::stage_of(const torch::optim::Optimizer& optimizer) const {
  const auto found = iterations_.find(&optimizer);
  return found == iterations_.end() ? Stage::kReady : found->second.stage;
}

// Of several stages only the last has a loss to scale. Asked until it is so, and then no more.
void GradScaler::check_scaled() {
  if (!group_has_scaled_) group_has_scaled_ = agreed({has_scaled_, false})[0];
  check(group_has_scaled_,
      "GradScaler: unscale_() or step() was called before scale(); backward() must start from "
      "scale(loss)");
}

GradScaler::Flags GradScaler::agreed(const Flags& own) const {
  const torch::Tensor flags = torch::tensor({own[0] ? 1.0F : 0.0F, own[1] ? 1.0F : 0.0F});
  group_.all_reduce(flags, ReduceOp::kMax).wait();
  return {flags[0].item<float>() > 0, flags[1].item<float>() > 0};
}

}  // namespace lockstep::nn
