#include "lockstep/parallel/operators/random_stream.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace lockstep {
namespace {

thread_local std::optional<at::Generator> current_stream;

// The device that an operator computes on: that of its first tensor, or the one it is asked for.
c10::DeviceType device_of(
    const std::vector<c10::Argument>& arguments, c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device().type();
  }
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (arguments[index].name() == "device" && values[index].isDevice())
      return values[index].toDevice().type();
  }
  return c10::kCPU;
}

void draw_from_stream(
    const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = operation.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  const c10::ArrayRef<c10::IValue> values(stack->data() + first, arguments.size());
  if (current_stream && device_of(arguments, values) == current_stream->device().type()) {
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      c10::IValue& value = (*stack)[first + index];
      if (arguments[index].name() == "generator" && value.isNone()) value = *current_stream;
    }
  }
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kOperatorRules);
  operation.redispatchBoxed(keys & below, stack);
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

}  // namespace

// LibTorch's own operators are registered when this library is loaded: it depends on LibTorch.
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto operation = c10::Dispatcher::singleton().findSchema(name);
    if (!operation || name.name.rfind("aten::", 0) != 0 || !takes_generator(*operation)) continue;
    library.impl(
        local_name(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&draw_from_stream>());
  }
}

RandomStream::RandomStream(at::Generator generator)
    : before_(std::exchange(current_stream, std::move(generator))) {}

RandomStream::~RandomStream() { current_stream = std::move(before_); }

std::uint64_t draw_stream_seed() {
  const bool is_ours = current_stream && current_stream->device().is_cpu();
  at::Generator generator = is_ours ? *current_stream : at::detail::getDefaultCPUGenerator();
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
