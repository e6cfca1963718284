#include "lockstep/core/progress_thread.h"

#include <csignal>

namespace lockstep {
namespace {

// A write to a socket whose other end is gone, or beyond the largest size of a file, fails: it does
// not end the process without a word.
void block_signals_of_writes() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

void ProgressThread::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void ProgressThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  const std::lock_guard joining(joining_);
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::run() {
  block_signals_of_writes();
  const auto is_wanted = [this] { return is_woken_ || is_stopped_; };
  Pause pause;
  std::unique_lock lock(mutex_);
  while (true) {
    if (!pause) changed_.wait(lock, is_wanted);
    if (pause && pause->count() > 0) changed_.wait_for(lock, *pause, is_wanted);
    if (is_stopped_) return;
    is_woken_ = false;
    lock.unlock();
    pause = advance_();
    lock.lock();
  }
}

}  // namespace lockstep
