#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep {

/// A thread that makes progress with something while the others do something else: it calls a
/// function after each wake(), and again while that asks for it.
class ProgressThread {
 public:
  /// The pause before the function is called again; nothing: it is called after the next wake().
  using Pause = std::optional<std::chrono::microseconds>;

  explicit ProgressThread(std::function<Pause()> advance) : advance_(std::move(advance)) {}
  ~ProgressThread() { stop(); }
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Ends a pause; the first call starts the thread. Throws std::system_error where there can be
  /// none.
  void wake();

  /// Waits for the call of the function that is under way; no other follows. Any thread but this
  /// one may call it.
  void stop();

 private:
  void run();

  std::function<Pause()> advance_;
  std::mutex mutex_, joining_;
  std::condition_variable changed_;
  bool is_woken_ = false, is_stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep
