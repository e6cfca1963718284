#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/comm/work.h"

namespace lockstep::hierarchy {

/// A thread that carries out calls one after the other, in the order in which they were added. A
/// call may wait for other ranks as long as it likes: whoever added it goes on meanwhile. The first
/// call starts it.
class TurnThread {
 public:
  /// `on_failure` hears what a call has thrown before the one who waits for it does.
  explicit TurnThread(std::function<void(const std::string&)> on_failure)
      : on_failure_(std::move(on_failure)) {}

  /// Waits for the call that is being carried out; those behind it fail with CommError.
  ~TurnThread();
  TurnThread(const TurnThread&) = delete;
  TurnThread& operator=(const TurnThread&) = delete;

  /// Adds a call; waiting for it throws what it throws.
  Work add(std::function<void()> run);

  /// Returns whether all calls have ended.
  bool is_idle() const;

 private:
  class Call;

  void carry_out();
  std::shared_ptr<Call> next();

  std::function<void(const std::string&)> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::shared_ptr<Call>> calls_;  ///< the first one is being carried out
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::hierarchy
