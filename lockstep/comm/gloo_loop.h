#pragma once

#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>
#include <optional>

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

/// While it lives, threads that the caller starts are the kernel's batch threads: they take the
/// core from no other thread when they wake up. A caller with a policy of its own keeps it.
///
/// Note [Gloo's loop]
/// Gloo's thread that waits for its sockets asks for a connection's lock again and again, without a
/// pause, while another thread holds it. On a core of its own that is free. Pinned to the core of
/// its rank, it took the core from the thread that held the lock and kept it for a whole time
/// slice: an all-reduce of 64 KiB took 3 ms. It takes 0.2 ms where that loop is a batch thread.
///
/// A batch thread takes the core from no other program either: where one computes there, each
/// message would wait for the end of its time slice, and a run kept a sixth of its rate. So the
/// loop is an ordinary thread while others want the core.
class BatchThreads {
 public:
  BatchThreads();
  ~BatchThreads();
  BatchThreads(const BatchThreads&) = delete;
  BatchThreads& operator=(const BatchThreads&) = delete;

 private:
  bool was_usual_;
};

/// Times for which a rank's thread and Gloo's, which share its core, ran and waited for the core.
struct CoreTimes {
  std::chrono::nanoseconds ran{}, waited{};
};

/// Says whether other programs wanted the core between two readings. Threads that have it to
/// themselves wait for each other for less time than they run.
bool others_want_core(const CoreTimes& begin, const CoreTimes& end);

/// Returns a reader of the times of the calling thread, a rank's, together with all of Gloo's in
/// this process. It returns nothing once the thread has ended, or where the kernel does not count.
std::function<std::optional<CoreTimes>()> core_times_of_this_thread();

/// Makes this process's loops of Gloo ordinary threads while other programs want the core of a
/// rank, and batch threads again afterwards. Does nothing where the rank's thread has a policy of
/// its own.
class LoopPolicy {
 public:
  /// `times` are those of a rank: the calling thread's.
  explicit LoopPolicy(
      std::function<std::optional<CoreTimes>()> times = core_times_of_this_thread());

  /// Called with each collective; looks no more than twenty times a second.
  void adapt();

 private:
  using Clock = std::chrono::steady_clock;

  std::function<std::optional<CoreTimes>()> times_;
  bool adapts_, is_wanted_ = false;
  Clock::time_point begin_ = Clock::now();
  std::optional<CoreTimes> at_begin_;
};

}  // namespace lockstep
