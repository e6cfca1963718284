#pragma once

#include <csignal>
#include <ctime>
#include <sched.h>

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

/// While it lives, threads that the caller starts are the kernel's batch threads: a thread that
/// wakes up takes the core from them at once. A caller with a policy of its own keeps it.
///
/// Note [Gloo's loop]
/// Gloo's thread that waits for its sockets polls them without a pause while there is data for
/// which no buffer has been posted. On a core of its own that is free; pinned to the core of its
/// rank it kept the thread that would post the buffer waiting for a whole time slice: an all-reduce
/// of 64 KiB took 3 ms. It takes 0.2 ms where that loop is a batch thread.
class BatchThreads {
 public:
  BatchThreads() : was_usual_(::sched_getscheduler(0) == SCHED_OTHER) { schedule(SCHED_BATCH); }
  ~BatchThreads() { schedule(SCHED_OTHER); }
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;

 private:
  // Where the kernel refuses, such as in a sandbox, collectives are slower and nothing else.
  void schedule(int policy) const {
    const sched_param none = {};
    if (was_usual_) static_cast<void>(::sched_setscheduler(0, policy, &none));
  }

  bool was_usual_;
};

}  // namespace lockstep
