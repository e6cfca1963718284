#include "lockstep/nn/grad_scaler.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/device/parameters.h"

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
  GradientsByKind gradients;
  for (const torch::Tensor& parameter : distinct(parameters)) {
    if (!parameter.grad().defined()) continue;
    torch::Tensor dense = dense_part(parameter);
    gradients[{dense.device().str(), dense.scalar_type()}].push_back(std::move(dense));
  }
  return gradients;
}

// The kernel's factor and its finding, on one device.
struct Scalars {
  torch::Tensor factor, found;
};

Scalars scalars_on(const torch::Device& device, const Scalars& given) {
  if (device == given.found.device()) return given;
  const auto options = at::TensorOptions(torch::kFloat).device(device);
  // A number goes to a device with the kernel that fills it: a copy would make the host wait.
  const torch::Tensor factor = given.factor.is_cpu()
                                   ? at::full({}, given.factor.item<float>(), options)
                                   : given.factor.to(device);
  return {factor, at::zeros({}, options)};
}

}  // namespace

bool unscale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor,
    const torch::Tensor& found) {
  const at::NoGradGuard no_gradients;
  std::map<std::string, Scalars> scalars;  // of each device
  for (auto& [kind, gradients] : gradients_of(parameters)) {
    const torch::Device device = gradients.front().device();
    const auto known = scalars.try_emplace(kind.first, scalars_on(device, {factor, found})).first;
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, known->second.found, known->second.factor);
  }
  for (const auto& [device, here] : scalars) {
    if (!here.found.is_same(found)) found.copy_(at::maximum(found, here.found.to(found.device())));
  }
  return !scalars.empty();
}

UnscaledGradients unscale_gradients(const std::vector<torch::Tensor>& parameters, double factor) {
  const torch::Tensor found = at::zeros({}, on_host(torch::kFloat));
  const bool any =
      unscale_gradients(parameters, at::full({}, factor, on_host(torch::kFloat)), found);
  return {.any = any, .finite = found.item<float>() == 0};
}

namespace {

// The findings of unscale_() on any rank: 1 or 0.
enum Found : std::uint8_t { kAnyGradient, kOverflowed };

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

GradScaler::GradScaler(GradScalerOptions options, ProcessGroup group, torch::Device device)
    : options_(options), group_(std::move(group)), device_(device) {
  if (!is_enabled()) return;
  check_scale(options_.init_scale());
  check_rule(options_.growth_factor(), options_.backoff_factor(), options_.growth_interval());
  scale_ = at::full({}, options_.init_scale(), on_device(torch::kFloat));
  growth_tracker_ = at::zeros({}, on_device(torch::kInt));
  skipped_ = at::zeros({}, on_device(torch::kLong));
}

// A number of the host goes to a device with the kernel that uses it: no copy, no wait. One of a
// device has gone to the other beside what both compute, or goes now for the first time.
torch::Tensor GradScaler::scale_on(const torch::Device& device) const {
  if (device == device_ || device.is_cpu()) return scale_.to(device);
  if (device_.is_cpu())
    return at::full({}, scale_.item<float>(), at::TensorOptions(torch::kFloat).device(device));
  const auto [there, is_new] =
      elsewhere_.try_emplace(device.index(), Elsewhere{PeerCopier(device)});
  if (is_new) copy_scale(there->second);
  return there->second.scale.wait().front();
}

// Of a clone, since the scale changes in place.
void GradScaler::copy_scale(Elsewhere& there) const {
  there.scale = there.copier({scale_.clone()});
}

// Before the step that needs it, whose kernels the copy would wait for.
void GradScaler::send_scale() {
  for (auto& [device, there] : elsewhere_) copy_scale(there);
}

// By a tensor of float32, as PyTorch does: the product of a float16 loss is float32 then.
torch::Tensor GradScaler::scale(const torch::Tensor& outputs) {
  if (!is_enabled()) return outputs;
  has_scaled_ = true;
  return outputs * scale_on(outputs.device());
}

std::vector<torch::Tensor> GradScaler::scale(const std::vector<torch::Tensor>& outputs) {
  std::vector<torch::Tensor> scaled;
  for (const torch::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

torch::Tensor GradScaler::unscaled(const torch::Tensor& outputs) const {
  return is_enabled() ? outputs / scale_on(outputs.device()) : outputs;
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
  const torch::Tensor found = at::zeros({2}, on_device(torch::kFloat));
  const torch::Tensor inverse = scale_.to(torch::kDouble).reciprocal().to(torch::kFloat);
  if (unscale_gradients(parameters, inverse, found[kOverflowed])) found[kAnyGradient].fill_(1);
  group_.all_reduce(found, ReduceOp::kMax).wait();
  iterations_[&optimizer] = {.stage = Stage::kUnscaled, .found = found};
}

GradScaler::Iteration& GradScaler::begin_step(torch::optim::Optimizer& optimizer) {
  check(stage_of(optimizer) != Stage::kStepped,
      "GradScaler: step() was called twice for one optimizer since the last update()");
  if (stage_of(optimizer) == Stage::kReady) unscale_(optimizer);
  return iterations_.at(&optimizer);
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!is_enabled()) {
    optimizer.step();
    return true;
  }
  Iteration& iteration = begin_step(optimizer);
  const torch::Tensor found = iteration.found.cpu();
  check_gradients(optimizer, found);
  const bool is_taken = found[kOverflowed].item<float>() == 0;
  if (is_taken) optimizer.step();
  iteration.stage = Stage::kStepped;
  return is_taken;
}

void GradScaler::step_without_wait(torch::optim::Optimizer& optimizer) {
  auto* const skippable = dynamic_cast<SkippableStep*>(&optimizer);
  if (!is_enabled() || device_.is_cpu() || skippable == nullptr || !skippable->can_skip()) {
    step(optimizer);
    return;
  }
  Iteration& iteration = begin_step(optimizer);
  if (!group_has_gradients_) check_gradients(optimizer, iteration.found.cpu());
  skippable->step_unless(iteration.found[kOverflowed]);
  iteration.stage = Stage::kStepped;
}

void GradScaler::update(const std::optional<double>& new_scale) {
  if (!is_enabled()) return;
  const torch::Tensor found = found_by_all();
  if (new_scale) {
    check_scale(*new_scale);
    scale_.fill_(static_cast<float>(*new_scale));
  } else {
    adapt_scale(found);
  }
  send_scale();
  if (found.defined()) skipped_.add_(found[kOverflowed].to(torch::kLong));
  iterations_.clear();
}

torch::Tensor GradScaler::found_by_all() const {
  torch::Tensor all;
  for (const auto& [optimizer, iteration] : iterations_)
    all = all.defined() ? at::maximum(all, iteration.found) : iteration.found;
  return all;
}

// The operator also keeps the scale where it would become infinite.
void GradScaler::adapt_scale(const torch::Tensor& found) {
  const bool any_gradient =
      found.defined() && (!device_.is_cpu() || found[kAnyGradient].item<float>() > 0);
  check(any_gradient,
      "GradScaler: update() was called before any step() or unscale_() of this iteration");
  at::_amp_update_scale_(scale_, growth_tracker_, found[kOverflowed], options_.growth_factor(),
      options_.backoff_factor(), options_.growth_interval());
}

std::int64_t GradScaler::take_skipped() {
  if (!is_enabled()) return 0;
  const auto count = skipped_.item<std::int64_t>();
  skipped_.zero_();
  return count;
}

torch::Tensor GradScaler::overflowed() const {
  const torch::Tensor found = found_by_all();
  return found.defined() ? found[kOverflowed] : torch::Tensor();
}

double GradScaler::scale_factor() const { return is_enabled() ? scale_.item<float>() : 1; }

std::optional<GradScalerState> GradScaler::state() const {
  if (!is_enabled()) return std::nullopt;
  return GradScalerState{.scale = scale_factor(),
      .growth_factor = options_.growth_factor(),
      .backoff_factor = options_.backoff_factor(),
      .growth_interval = options_.growth_interval(),
      .growth_tracker = growth_tracker_.item<int>()};
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
  scale_.fill_(static_cast<float>(state->scale));
  growth_tracker_.fill_(state->growth_tracker);
  send_scale();
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
  if (group_has_scaled_) return;
  const torch::Tensor any = at::full({1}, has_scaled_ ? 1 : 0, on_device(torch::kFloat));
  group_.all_reduce(any, ReduceOp::kMax).wait();
  group_has_scaled_ = any.item<float>() > 0;
  check(group_has_scaled_,
      "GradScaler: unscale_() or step() was called before scale(); backward() must start from "
      "scale(loss)");
}

// Nothing was unscaled then: once there are gradients, everything may be called as if for the first
// time.
void GradScaler::check_gradients(
    const torch::optim::Optimizer& optimizer, const torch::Tensor& found) {
  group_has_gradients_ = found[kAnyGradient].item<float>() > 0;
  if (!group_has_gradients_) iterations_.erase(&optimizer);
  check(group_has_gradients_,
      "GradScaler: step() found no gradient of this optimizer's parameters; call backward() first, "
      "or do not call step() for it");
}

torch::TensorOptions GradScaler::on_device(torch::ScalarType type) const {
  return torch::TensorOptions(type).device(device_);
}

}  // namespace lockstep::nn
