#include "lockstep/parallel/operators/random_stream.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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

}  // namespace

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
    : generators_{std::move(generator)}, before_(std::exchange(current_stream, this)) {}

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

}  // namespace lockstep
