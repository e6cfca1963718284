#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <future>
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
  bool poll() override {
    return end_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void wait() override { end_.get(); }

  /// Ends it, with what waiting for it throws, if that is not null.
  void end(const std::exception_ptr& failure) {
    failure ? promise_.set_exception(failure) : promise_.set_value();
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> end_ = promise_.get_future().share();
};

/// Carries out calls one after the other in a thread, in the order in which they were added. A call
/// may wait for other ranks as long as it likes: whoever added it goes on meanwhile.
class WorkQueue {
 public:
  /// `on_failure` gets the message of a call's exception before wait() throws it.
  explicit WorkQueue(std::function<void(const std::string&)> on_failure)
      : on_failure_(std::move(on_failure)) {}

  ~WorkQueue() { close(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Adds a call, which gets the limit of the calls of this thread; waiting for it throws what it
  /// throws.
  Work add(std::function<void()> run);

  /// Ends the thread after the call that it carries out; those behind it, and calls that are added
  /// later, fail with CommError.
  void close();

  /// Returns whether all calls have ended.
  bool is_idle() const;

 private:
  class Call;

  ProgressThread::Pause carry_out_next();

  std::function<void(const std::string&)> on_failure_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Call>> calls_;  ///< the first one is being carried out
  bool is_closed_ = false;
  ProgressThread thread_{[this] { return carry_out_next(); }};
};

}  // namespace lockstep
