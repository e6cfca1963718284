#include "lockstep/comm/hierarchy/courier.h"

#include <algorithm>
#include <chrono>

#include "lockstep/comm/gloo_threads.h"

namespace lockstep::hierarchy {
namespace {

constexpr auto kFirstPause = std::chrono::microseconds(50), kLongestPause = 20 * kFirstPause;

}  // namespace

Courier::~Courier() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    called_changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Courier::call() {
  const std::lock_guard lock(mutex_);
  called_ = true;
  called_changed_.notify_all();
  if (thread_.joinable()) return;
  const PipeSignalBlock block;
  thread_ = std::thread([this] { run(); });
}

// Pauses grow while nothing is added: a thread that waits for a message polls for it itself.
void Courier::run() {
  auto pause = kFirstPause;
  bool is_under_way = false;
  for (std::unique_lock lock(mutex_); !stopped_;) {
    const auto wanted = [this] { return stopped_ || called_; };
    if (is_under_way) called_changed_.wait_for(lock, pause, wanted);
    if (!is_under_way) called_changed_.wait(lock, wanted);
    pause = called_ ? kFirstPause : std::min(2 * pause, kLongestPause);
    called_ = false;
    lock.unlock();
    is_under_way = advance_();
    lock.lock();
  }
}

}  // namespace lockstep::hierarchy
