#pragma once

#include <csignal>
#include <ctime>

namespace lockstep {

/// Keeps SIGPIPE from this thread, and for good from the threads that are started meanwhile.
///
/// Gloo writes to sockets whose other end may be gone. The signal would end the process without a
/// word; blocked, the write fails, and the caller gets an error.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  PipeSignalBlock(const PipeSignalBlock&) = delete;
  PipeSignalBlock& operator=(const PipeSignalBlock&) = delete;
  ~PipeSignalBlock() {
    const timespec at_once{};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace lockstep
