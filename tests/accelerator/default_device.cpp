// Lets whole suites run on the emulated accelerator: with LOCKSTEP_TEST_DEVICE=emulated, tensors
// for which nobody names a device are made on the thread's current one, and groups of threads carry
// them by NCCL on emulated streams; with `staged`, by way of the host. With `cuda` they run on real
// GPUs: NCCL carries tensors where each rank of a suite has its own.

#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/late_call.h"
#include "tests/accelerator/runtime.h"
#include "tests/support/places.h"
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "lockstep/comm/device/device_backends.h"
#include "lockstep/device/accelerator.h"

namespace lockstep::emulated {
namespace {

struct FactoryArguments {
  std::optional<c10::ScalarType> type;
  std::optional<c10::Layout> layout;
  std::optional<c10::Device> device;
};

c10::DispatchKeySet keys_for(const FactoryArguments& asked) {
  return c10::DispatchKeySet(c10::computeDispatchKey(asked.type, asked.layout, asked.device));
}

// As LibTorch's own, but for the device that is taken where none is named.
void select_backend(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  FactoryArguments asked;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const std::string& name = arguments[i].name();
    if (name == "device" && value.isNone() && !KernelDispatch::is_active())
      value = c10::impl::VirtualGuardImpl(testing::device_type()).getDevice();
    if (name == "device" && value.isDevice()) asked.device = value.toDevice();
    if (name == "dtype" && value.isInt()) asked.type = value.toScalarType();
    if (name == "layout" && value.isInt()) asked.layout = value.toLayout();
  }
  op.redispatchBoxed(keys_for(asked), stack);
}

// Pinned memory is the host's, whatever the device.
bool makes_tensors_of_nothing(const c10::OperatorHandle& op) {
  bool has_device = false;
  for (const c10::Argument& argument : op.schema().arguments()) {
    if (argument.type()->str().find("Tensor") != std::string::npos) return false;
    has_device = has_device || argument.name() == "device";
  }
  return has_device && op.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect);
}

std::string local_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(std::string("aten::").size());
  return name.overload_name.empty() ? base : base + "." + name.overload_name;
}

void make_tensors_on_devices() {
  static torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !makes_tensors_of_nothing(*op)) continue;
    library.impl(
        local_name(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&select_backend>());
  }
}

void use_gpus() {
  constexpr int kMostRanks = 4;
  const std::string reason = reason_against(torch::kCUDA);
  if (!reason.empty()) {
    std::cerr << "LOCKSTEP_TEST_DEVICE=cuda: " << reason << '\n';
    std::exit(1);
  }
  if (testing::device_count() < kMostRanks) register_device_backend(torch::kCUDA, nullptr);
}

const bool kIsActive = [] {
  const char* const device = std::getenv("LOCKSTEP_TEST_DEVICE");
  const std::string asked = device == nullptr ? "" : device;
  if (asked != "emulated" && asked != "staged" && asked != "cuda") return false;
  if (asked == "cuda") {
    use_gpus();
  } else {
    install();
  }
  make_tensors_on_devices();
  if (asked == "emulated") new UseEmulatedNccl;  // for as long as the program runs
  return true;
}();

}  // namespace

UseEmulatedNccl::UseEmulatedNccl() {
  nccl::use_api(&kNcclFunctions);
  register_device_backend(c10::kPrivateUse1, &make_nccl_backend);
}

UseEmulatedNccl::~UseEmulatedNccl() {
  register_device_backend(c10::kPrivateUse1, nullptr);
  nccl::use_api(nullptr);
}

}  // namespace lockstep::emulated
