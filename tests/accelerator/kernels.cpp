// The kernels of the emulated device; and the lists of LibTorch's that the tests need: what
// computes in the shorter type, and what in fp32.

#include <cstdint>
#include <optional>
#include <utility>

#include "tests/accelerator/late_call.h"
#include "tests/accelerator/runtime.h"
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nll_loss.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace lockstep::emulated {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using torch::jit::Stack;
template <typename T>
using Maybe = std::optional<T>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Allocator* device_allocator() { return c10::GetAllocator(c10::kPrivateUse1); }

Tensor empty(IntArrayRef sizes, Maybe<c10::ScalarType> type, Maybe<c10::Layout>,
    Maybe<c10::Device> device, Maybe<bool>, Maybe<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      sizes, device_allocator(), kKeys, c10::dtype_or_default(type), format);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, Maybe<c10::ScalarType> type,
    Maybe<c10::Layout>, Maybe<c10::Device> device, Maybe<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      sizes, strides, device_allocator(), kKeys, c10::dtype_or_default(type));
}

void queue_copy(std::size_t stream, const Tensor& from, const Tensor& to) {
  streams().enqueue(stream, [from, to] {
    const KernelDispatch dispatch;
    to.copy_(from);
  });
}

/// Returns a tensor of the same memory that does not keep it.
Tensor address_of(const Tensor& host) {
  return at::from_blob(
      const_cast<void*>(host.const_data_ptr()), host.sizes(), host.strides(), host.options());
}

bool is_late(const Tensor& host, bool non_blocking) {
  return non_blocking && host.numel() > 0 && Runtime::get().pinned().holds(host.const_data_ptr());
}

// When the copy is queued: from then on the memory is in use. As LibTorch's allocators do, by whom
// the memory belongs to: that of a tensor that only borrows it, nobody keeps.
void keep_pinned(const Tensor& host, std::size_t stream) {
  Runtime::get().pinned().record(host.storage().data_ptr().get_context(), stream);
}

void copy_to_device(const Tensor& from, const Tensor& to, bool non_blocking) {
  Runtime& runtime = Runtime::get();
  const std::size_t stream = runtime.current(to.device().index());
  runtime.count(&Counts::copies_to_device);
  if (is_late(from, non_blocking)) {
    queue_copy(stream, address_of(from), kernels_view(to));
    return keep_pinned(from, stream);
  }
  const KernelDispatch dispatch;
  queue_copy(stream, from.clone(),
      kernels_view(to));  // as a GPU's driver does with memory that is not pinned
  if (!non_blocking) runtime.finish_as_host(streams().mark(stream));
}

void copy_to_host(const Tensor& from, const Tensor& to, bool non_blocking) {
  Runtime& runtime = Runtime::get();
  const std::size_t stream = runtime.current(from.device().index());
  runtime.count(&Counts::copies_to_host);
  const bool is_queued = is_late(to, non_blocking);
  queue_copy(stream, kernels_view(from), is_queued ? address_of(to) : to);
  if (is_queued) {
    keep_pinned(to, stream);
  } else {
    runtime.finish_as_host(streams().mark(stream));
  }
}

// As between GPUs: on the source's stream, which waits for the target's; the target's waits for the
// copy.
void copy_between(const Tensor& from, const Tensor& to) {
  Runtime& runtime = Runtime::get();
  const std::size_t source = runtime.current(from.device().index());
  const std::size_t target = runtime.current(to.device().index());
  runtime.count(source == target ? &Counts::copies_on_device : &Counts::copies_between_devices);
  streams().wait(source, streams().mark(target));
  queue_copy(source, kernels_view(from), kernels_view(to));
  streams().wait(target, streams().mark(source));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (from.is_cpu()) {
    copy_to_device(from, to, non_blocking);
  } else if (to.is_cpu()) {
    copy_to_host(from, to, non_blocking);
  } else {
    copy_between(from, to);
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

c10::Scalar value_of(const Tensor& tensor) {
  Runtime& runtime = Runtime::get();
  runtime.finish_as_host(streams().mark(runtime.current(tensor.device().index())));
  const KernelDispatch dispatch;
  return kernels_view(tensor).item();
}

// Module::to() puts a tensor of a device in the place of one of the host.
bool has_compatible_shallow_copy_type(const Tensor&, const Tensor&) { return true; }

void record_stream(Tensor& tensor, c10::Stream stream) {
  if (tensor.numel() > 0) Runtime::get().record(tensor.storage().mutable_data_ptr(), stream);
}

// LibTorch's own takes new memory from the device that is current, and moves the bytes as the host.
const Tensor& resize(
    const Tensor& tensor, c10::SymIntArrayRef sizes, Maybe<c10::MemoryFormat> format) {
  const auto elements =
      c10::multiply_integers(C10_AS_INTARRAYREF_SLOW(sizes)) + tensor.storage_offset();
  const std::size_t bytes = static_cast<std::size_t>(elements) * tensor.itemsize();
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(sizes), format);
}

Tensor view(const Tensor& tensor, c10::SymIntArrayRef sizes) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(sizes));
}

Tensor reshape_alias(const Tensor& tensor, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(
      tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

Tensor as_strided(const Tensor& tensor, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
    Maybe<c10::SymInt> offset) {
  Maybe<std::int64_t> from;
  if (offset) from = offset->expect_int();
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), from);
}

Tensor& set_storage(Tensor& tensor, c10::Storage storage, std::int64_t offset, IntArrayRef sizes,
    IntArrayRef strides) {
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

const c10::OperatorHandle& operator_named(const char* name) {
  return *new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
}

void convolution(const c10::OperatorHandle&, Stack* stack) {
  static const c10::OperatorHandle& convolution_on_cpu = operator_named("aten::convolution");
  queue_operator(convolution_on_cpu, stack);
}

// The CPU's operator also takes the bias's sizes, after the weight.
void convolution_backward(const c10::OperatorHandle&, Stack* stack) {
  static const c10::OperatorHandle& backward_on_cpu = operator_named("aten::convolution_backward");
  constexpr std::size_t kArguments = 10;
  Stack arguments = torch::jit::pop(*stack, kArguments);
  const Tensor gradient = arguments[0].toTensor();
  arguments.insert(arguments.begin() + 3, c10::IValue(std::vector<std::int64_t>{gradient.size(1)}));
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  queue_operator(backward_on_cpu, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("resize_", &resize);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &value_of);
  library.impl("record_stream", &record_stream);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  // By way of mse_loss.out, LibTorch's CPU warns of each call.
  library.impl("mse_loss", torch::CppFunction::makeFromBoxedFunction<&queue_operator>());
  library.impl(
      "convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  library.impl("convolution_backward_overrideable",
      torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&queue_operator>());
}

}  // namespace lockstep::emulated

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(nll_loss, fp32)
}

}  // namespace
}  // namespace at::autocast
