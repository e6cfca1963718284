#pragma once

#include <signal.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// Turns signals to this process into something to read; their old effect returns when it ends.
///
/// A signal that is ignored on entry stays ignored, so that `nohup` keeps its meaning.
class SignalReader {
 public:
  explicit SignalReader(const std::vector<int>& signals);
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader();

  /// Returns a descriptor that becomes readable when a signal has come.
  int descriptor() const { return descriptor_.get(); }

  /// Returns the signals that have come since the last call.
  std::vector<int> read() const;

 private:
  sigset_t before_;
  FileDescriptor descriptor_;
};

}  // namespace lockstep::launch
