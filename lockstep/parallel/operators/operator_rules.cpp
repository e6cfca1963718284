#include "lockstep/parallel/operators/operator_rules.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/var_mean.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/library.h>
#include <torch/types.h>

namespace lockstep {
namespace {

thread_local const RandomStream* current_stream = nullptr;

// The device that an operator computes on: that of its first tensor, or the one it is asked for.
c10::Device device_of(
    const std::vector<c10::Argument>& arguments, c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
  }
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (arguments[index].name() == "device" && values[index].isDevice())
      return values[index].toDevice();
  }
  return c10::Device(c10::kCPU);
}

c10::DispatchKeySet below_rules() { return {c10::DispatchKeySet::FULL_AFTER, kOperatorRules}; }

void draw_from_stream(
    const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = operation.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  const c10::ArrayRef<c10::IValue> values(stack->data() + first, arguments.size());
  if (current_stream != nullptr) {
    const at::Generator generator = current_stream->on(device_of(arguments, values));
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      c10::IValue& value = (*stack)[first + index];
      if (arguments[index].name() == "generator" && value.isNone()) value = generator;
    }
  }
  operation.redispatchBoxed(keys & below_rules(), stack);
}

bool takes_generator(const c10::OperatorHandle& operation) {
  for (const auto& argument : operation.schema().arguments()) {
    if (argument.name() == "generator") return true;
  }
  return false;
}

std::string local_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(std::string("aten::").size());
  return name.overload_name.empty() ? base : base + "." + name.overload_name;
}

// Accelerators have one operator for all of dropout, which takes no generator: so it is composed
// here as LibTorch does it elsewhere.
torch::Tensor drop_from_stream(
    c10::DispatchKeySet keys, const torch::Tensor& input, double p, bool train) {
  const bool draws = train && p > 0 && p < 1 && input.numel() > 0;
  if (!draws || input.is_cpu() || current_stream == nullptr) {
    return at::_ops::dropout::redispatch(keys & below_rules(), input, p, train);
  }
  return input * at::empty_like(input).bernoulli_(1 - p).div_(1 - p);
}

thread_local BatchNormRule* current_rule = nullptr;

torch::Tensor given(const std::optional<torch::Tensor>& tensor) {
  return tensor.value_or(torch::Tensor());
}

torch::Tensor apply_rule(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
    const std::optional<torch::Tensor>& bias, const std::optional<torch::Tensor>& running_mean,
    const std::optional<torch::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  const OperatorRulesOff off;
  if (current_rule == nullptr || !training) {
    return at::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  }
  return current_rule->batch_norm(
      {input, given(weight), given(bias), given(running_mean), given(running_var), momentum, eps});
}

// LibTorch computes an instance norm by a batch norm of [1, N * C, ...], which is no rule's.
torch::Tensor apply_rule_to_instances(const torch::Tensor& input,
    const std::optional<torch::Tensor>& weight, const std::optional<torch::Tensor>& bias,
    const std::optional<torch::Tensor>& running_mean,
    const std::optional<torch::Tensor>& running_var, bool use_input_stats, double momentum,
    double eps, bool cudnn_enabled) {
  const OperatorRulesOff off;
  if (current_rule == nullptr || !use_input_stats || !given(running_mean).defined()) {
    return at::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats,
        momentum, eps, cudnn_enabled);
  }
  return current_rule->instance_norm(
      {input, given(weight), given(bias), given(running_mean), given(running_var), momentum, eps});
}

std::vector<std::int64_t> dimensions_from(std::int64_t first, const torch::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t dimension = first; dimension < input.dim(); ++dimension)
    dimensions.push_back(dimension);
  return dimensions;
}

std::vector<std::int64_t> all_but_channels(const torch::Tensor& input) {
  auto dimensions = dimensions_from(2, input);
  dimensions.push_back(0);
  return dimensions;
}

}  // namespace

// An operator without a rule goes on to what LibTorch does.
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

// Not inline, so that a program with rules links this file and its registration above.
OperatorRulesOn::OperatorRulesOn() : guard_(kOperatorRules) {}

// LibTorch's own operators are registered when this library is loaded: it depends on LibTorch.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto operation = c10::Dispatcher::singleton().findSchema(name);
    if (!operation || name.name.rfind("aten::", 0) != 0 || !takes_generator(*operation)) continue;
    library.impl(
        local_name(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&draw_from_stream>());
  }
  library.impl("dropout", TORCH_FN(drop_from_stream));
}

RandomStream::RandomStream(at::Generator generator)
    : RandomStream(std::vector{std::move(generator)}) {}

RandomStream::RandomStream(std::vector<at::Generator> generators)
    : generators_(std::move(generators)), before_(std::exchange(current_stream, this)) {}

RandomStream::~RandomStream() { current_stream = before_; }

at::Generator RandomStream::on(c10::Device device) const {
  if (!device.is_cpu() && !device.has_index())
    device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  for (const at::Generator& generator : generators_) {
    const bool is_of_cpu = device.is_cpu() && generator.device().is_cpu();
    if (is_of_cpu || generator.device() == device) return generator;
  }
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(generators_.front().current_seed());
  return generators_.emplace_back(std::move(generator));
}

std::vector<at::Generator> generators_of_thread(c10::Device device) {
  if (current_stream != nullptr) {
    current_stream->on(device);
    return current_stream->generators();
  }
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  if (!device.is_cpu()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

std::vector<at::Generator> copies_of(const std::vector<at::Generator>& generators) {
  std::vector<at::Generator> copies;
  for (at::Generator generator : generators) {
    const std::lock_guard lock(generator.mutex());
    copies.push_back(generator.clone());
  }
  return copies;
}

std::uint64_t draw_stream_seed() {
  at::Generator generator = current_stream != nullptr ? current_stream->on(c10::kCPU)
                                                      : at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// The constants are those of splitmix64.
std::uint64_t stream_seed(std::uint64_t seed, std::size_t row, std::size_t column) {
  std::uint64_t mixed = seed + 0x9E3779B97F4A7C15U * (row + 1) + 0xD1B54A32D192ED03U * (column + 1);
  mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31U);
}

at::Generator make_stream_generator(std::uint64_t seed, std::size_t row, std::size_t column) {
  return at::make_generator<at::CPUGeneratorImpl>(stream_seed(seed, row, column));
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", apply_rule);
  library.impl("instance_norm", apply_rule_to_instances);
}

torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call) {
  return at::batch_norm(call.input, call.weight, call.bias, {}, {}, true, 0, call.eps, true);
}

torch::Tensor instance_norm_without_running_statistics(const BatchNormCall& call) {
  return at::instance_norm(call.input, call.weight, call.bias, {}, {}, true, 0, call.eps, true);
}

torch::Tensor BatchNormRule::instance_norm(const BatchNormCall& call) {
  return at::instance_norm(call.input, call.weight, call.bias, call.running_mean, call.running_var,
      true, call.momentum, call.eps, true);
}

BatchNormScope::BatchNormScope(BatchNormRule& rule) : before_(std::exchange(current_rule, &rule)) {}

bool has_batch_norm_rule() { return current_rule != nullptr; }

BatchNormScope::~BatchNormScope() { current_rule = before_; }

DeferredBatchNorm::Layer& DeferredBatchNorm::layer_of(const BatchNormCall& call, Unit unit) {
  for (Layer& layer : layers_) {
    if (layer.running_mean.is_same(call.running_mean)) return layer;
  }
  const auto zeros =
      torch::zeros(call.running_mean.sizes(), call.running_mean.options().dtype(torch::kDouble));
  return layers_.emplace_back(
      Layer{call.running_mean, call.running_var, unit, call.momentum, 0, zeros, zeros.clone()});
}

void DeferredBatchNorm::add(const BatchNormCall& call) {
  const torch::NoGradGuard no_grad;
  Layer& layer = layer_of(call, Unit::kBatch);
  layer.momentum = call.momentum;
  const double count =
      static_cast<double>(call.input.numel()) / static_cast<double>(call.input.size(1));
  auto [variance, mean] =
      at::var_mean(call.input.to(torch::kDouble), all_but_channels(call.input), false);
  const auto delta = mean - layer.mean;
  const double total = layer.count + count;
  layer.squares += variance * count + delta.square() * (layer.count * count / total);
  layer.mean += delta * (count / total);
  layer.count = total;
}

void DeferredBatchNorm::add_samples(const BatchNormCall& call) {
  const torch::NoGradGuard no_grad;
  Layer& layer = layer_of(call, Unit::kSample);
  layer.momentum = call.momentum;
  const auto count = static_cast<double>(call.input.size(0));
  auto [variance, mean] =
      at::var_mean(call.input.to(torch::kDouble), dimensions_from(2, call.input), true);
  layer.squares += variance.sum(0);
  layer.count += count;
  layer.mean += (mean.sum(0) - layer.mean * count) / layer.count;
}

torch::Tensor DeferredBatchNorm::batch_norm(const BatchNormCall& call) {
  if (call.running_mean.defined()) add(call);
  return batch_norm_without_running_statistics(call);
}

torch::Tensor DeferredBatchNorm::instance_norm(const BatchNormCall& call) {
  add_samples(call);
  return instance_norm_without_running_statistics(call);
}

// Without new versions, as LibTorch's batch norm.
void DeferredBatchNorm::commit() {
  const torch::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  for (const Layer& layer : layers_) {
    const auto type = layer.running_mean.scalar_type();
    const double divisor = layer.unit == Unit::kBatch ? layer.count - 1 : layer.count;
    layer.running_mean.mul_(1 - layer.momentum).add_(layer.mean.to(type), layer.momentum);
    layer.running_var.mul_(1 - layer.momentum)
        .add_((layer.squares / divisor).to(type), layer.momentum);
  }
  layers_.clear();
}

}  // namespace lockstep
