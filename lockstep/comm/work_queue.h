#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/comm/work.h"
#include "lockstep/core/progress_thread.h"

namespace lockstep {

/// Work that another thread ends.
class PromisedWork : public Work::State {
 public:
  bool poll() override;
  void wait() override;

  /// Ends it, with what waiting for it throws, if that is not null.
  void end(std::exception_ptr failure);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  std::exception_ptr failure_;
};

/// Carries out calls one after the other in a thread, in the order in which they were added. A call
/// may wait for other ranks as long as it likes: whoever added it goes on meanwhile.
class WorkQueue {
 public:
  /// `on_failure` hears what a call has thrown before the one who waits for it does.
  explicit WorkQueue(std::function<void(const std::string&)> on_failure)
      : on_failure_(std::move(on_failure)) {}

  /// Waits for the call that is being carried out; those behind it fail with CommError.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Adds a call; waiting for it throws what it throws.
  Work add(std::function<void()> run);

  /// Returns whether all calls have ended.
  bool is_idle() const;

 private:
  class Call;

  ProgressThread::Pause carry_out_next();

  std::function<void(const std::string&)> on_failure_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Call>> calls_;  ///< the first one is being carried out
  ProgressThread thread_{[this] { return carry_out_next(); }};
};

}  // namespace lockstep
