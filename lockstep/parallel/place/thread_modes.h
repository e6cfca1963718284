#pragma once

#include <cfenv>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

namespace lockstep {

/// The modes that LibTorch keeps per thread and a worker must take over: gradients on or off,
/// inference mode, autocast with its types and cache, hooks on saved tensors, the current streams
/// of accelerators, the treatment of denormal numbers.
///
/// A new thread has autocast off and gradients on, whatever its creator had: without this, a
/// replica in a thread would compute something else than the module in the caller's.
///
///     ThreadModes modes;                                  // those of this thread
///     worker.begin([&] { ThreadModes::Scope scope(modes); output = net->forward(input); });
class ThreadModes {
 public:
  /// Captures the modes of the calling thread.
  ThreadModes();

  class Scope;

 private:
  void install_what_the_state_lacks() const;

  at::ThreadLocalState state_;
  // Not in the state of every LibTorch that we support.
  std::vector<std::pair<c10::DeviceType, c10::ScalarType>> autocast_types_;
  bool autocast_cache_;
  std::vector<c10::Stream> streams_;  // of each accelerator, if there are any
  std::fenv_t arithmetic_;
};

/// Puts captured modes in force in the calling thread for as long as it lives.
class ThreadModes::Scope {
 public:
  explicit Scope(const ThreadModes& modes);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ThreadModes outer_;  // captured before the guard changes the thread
  at::ThreadLocalStateGuard guard_;
};

}  // namespace lockstep
