#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace lockstep::emulated {

/// Queues an operator, which the CPU's kernel computes when the stream comes to it, and puts its
/// results on the stack. Their sizes come from calling the kernel on zeros, once for arguments of
/// the same sizes. Operators whose results depend on values wait for the stream.
void queue_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Returns a CPU tensor that sees what a device's tensor sees, for use on its stream.
at::Tensor kernels_view(const at::Tensor& tensor);

/// Keeps autograd, autocast and whatever else a thread has switched on away from kernels.
class KernelDispatch {
 public:
  KernelDispatch() { ++depth; }
  ~KernelDispatch() { --depth; }
  KernelDispatch(const KernelDispatch&) = delete;
  KernelDispatch& operator=(const KernelDispatch&) = delete;

  /// Says whether the calling thread is in a kernel.
  static bool is_active() { return depth > 0; }

 private:
  inline static thread_local int depth = 0;
  c10::impl::ForceDispatchKeyGuard guard_{c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
          c10::DispatchKeySet(c10::DispatchKey::AutogradOther)};
};

}  // namespace lockstep::emulated
