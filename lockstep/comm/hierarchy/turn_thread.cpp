#include "lockstep/comm/hierarchy/turn_thread.h"

#include <exception>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "lockstep/comm/gloo_threads.h"
#include "lockstep/core/error.h"

namespace lockstep::hierarchy {

class TurnThread::Call : public Work::State {
 public:
  explicit Call(std::function<void()> run) : run_(std::move(run)) {}

  bool poll() override {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    ended_changed_.wait(lock, [this] { return ended_; });
    if (failure_) std::rethrow_exception(failure_);
  }

  /// Returns what it has thrown. The tensors that it owns are released before it ends.
  std::exception_ptr run(const std::function<void(const std::string&)>& on_failure) {
    std::exception_ptr failure;
    try {
      std::exchange(run_, nullptr)();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      on_failure(error.what());
    } catch (...) {
      failure = std::current_exception();
      on_failure("an exception of an unknown type");
    }
    return failure;
  }

  void end(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    ended_ = true;
    ended_changed_.notify_all();
  }

 private:
  std::function<void()> run_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::exception_ptr failure_;
};

TurnThread::~TurnThread() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    added_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Work TurnThread::add(std::function<void()> run) {
  auto call = std::make_shared<Call>(std::move(run));
  const std::lock_guard lock(mutex_);
  calls_.push_back(call);
  added_.notify_all();
  if (!thread_.joinable()) {
    const PipeSignalBlock block;  // it writes to sockets
    thread_ = std::thread([this] { carry_out(); });
  }
  return Work(std::move(call));
}

bool TurnThread::is_idle() const {
  const std::lock_guard lock(mutex_);
  return calls_.empty();
}

std::shared_ptr<TurnThread::Call> TurnThread::next() {
  std::unique_lock lock(mutex_);
  added_.wait(lock, [this] { return stopped_ || !calls_.empty(); });
  return stopped_ ? nullptr : calls_.front();
}

// A call leaves the queue before it ends: whoever waited for the last one finds an empty queue.
void TurnThread::carry_out() {
  const at::NoGradGuard no_gradients;
  while (const auto call = next()) {
    std::exception_ptr failure = call->run(on_failure_);
    {
      const std::lock_guard lock(mutex_);
      calls_.pop_front();
    }
    call->end(std::move(failure));
  }
  const auto closed = std::make_exception_ptr(CommError("the group was closed"));
  const std::lock_guard lock(mutex_);
  for (const auto& call : calls_) call->end(closed);
}

}  // namespace lockstep::hierarchy
