#include "lockstep/comm/work_queue.h"

#include <ATen/core/grad_mode.h>

#include "lockstep/comm/call_limit.h"
#include "lockstep/core/error.h"

namespace lockstep {

class WorkQueue::Call : public PromisedWork {
 public:
  explicit Call(std::function<void()> run) : run_(std::move(run)) {}

  /// Returns what it has thrown. The tensors that it owns are released before it ends.
  std::exception_ptr run(const std::function<void(const std::string&)>& on_failure) {
    const CallLimit limit(limit_);
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

 private:
  std::function<void()> run_;
  std::optional<CallLimit::Milliseconds> limit_ = CallLimit::of_this_thread();
};

namespace {

std::exception_ptr closed() { return std::make_exception_ptr(CommError("the group was closed")); }

}  // namespace

void WorkQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  thread_.stop();
  const auto left = [this] {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }();
  for (const auto& call : left) call->end(closed());
}

Work WorkQueue::add(std::function<void()> run) {
  auto call = std::make_shared<Call>(std::move(run));
  const bool is_open = [&] {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) calls_.push_back(call);
    return !is_closed_;
  }();
  if (is_open)
    thread_.wake();
  else
    call->end(closed());
  return Work(std::move(call));
}

bool WorkQueue::is_idle() const {
  const std::lock_guard lock(mutex_);
  return calls_.empty();
}

// A call leaves the queue before it ends: whoever waited for the last one finds an empty queue.
ProgressThread::Pause WorkQueue::carry_out_next() {
  std::shared_ptr<Call> call;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || calls_.empty()) return std::nullopt;
    call = calls_.front();
  }
  const at::NoGradGuard no_gradients;
  const std::exception_ptr failure = call->run(on_failure_);
  {
    const std::lock_guard lock(mutex_);
    calls_.pop_front();
  }
  call->end(failure);
  return std::chrono::microseconds(0);
}

}  // namespace lockstep
