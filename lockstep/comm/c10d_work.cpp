#include "lockstep/comm/c10d_work.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

[[noreturn]] void fail(const C10dCall& call, const std::exception& error) {
  const auto group = call.group.lock();
  const std::string aborted = group ? group->abort_reason() : "";
  if (!aborted.empty()) throw CommError(concat(call.what, ": ", aborted));
  try {
    rethrow_as_comm_error(call.what, error);
  } catch (const CommError& failure) {
    if (group) group->give_up(failure.what());
    throw;
  }
}

void wait_for(C10dCall& call, std::chrono::milliseconds timeout = kNoTimeout) {
  try {
    call.work->wait(timeout);
  } catch (const std::exception& error) {
    fail(call, error);
  }
  if (call.finish) std::exchange(call.finish, nullptr)();
}

class CollectiveWork : public Work::State {
 public:
  explicit CollectiveWork(C10dCall call) : call_(std::move(call)) {}

  bool poll() override { return call_.work->isCompleted(); }
  void wait() override { wait_for(call_); }

 private:
  C10dCall call_;
};

class MessageWork : public Work::State {
 public:
  MessageWork(C10dCall call, std::chrono::milliseconds timeout)
      : call_(std::move(call)), timeout_(timeout) {}
  MessageWork(const MessageWork&) = delete;
  MessageWork& operator=(const MessageWork&) = delete;

  // Without the abort its thread would go on waiting, until the deadline.
  ~MessageWork() override {
    if (waiter_.joinable() && !ended_) call_.work->abort();
  }

  bool poll() override {
    if (!ended_ && !waiter_.joinable()) waiter_ = std::jthread([this] { wait_here(); });
    return ended_;
  }

  void wait() override {
    if (waiter_.joinable()) waiter_.join();
    if (!ended_) wait_here();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Once: a second wait of c10d's would be for a second message.
  void wait_here() {
    try {
      wait_for(call_, timeout_);
    } catch (...) {
      failure_ = std::current_exception();
    }
    ended_ = true;
  }

  C10dCall call_;
  std::chrono::milliseconds timeout_;
  std::exception_ptr failure_;
  std::atomic<bool> ended_ = false;
  std::jthread waiter_;  // the last member, so that it is joined first
};

}  // namespace

void AbortableGroup::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
  }
  close_connections();
}

std::string AbortableGroup::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Work collective_work(C10dCall call) {
  return Work(std::make_shared<CollectiveWork>(std::move(call)));
}

Work message_work(C10dCall call, std::chrono::milliseconds timeout) {
  return Work(std::make_shared<MessageWork>(std::move(call), timeout));
}

void rethrow_as_comm_error(const std::string& what, const std::exception& error) {
  const std::string reason = error.what();
  const std::string first = reason.substr(0, reason.find('\n'));
  if (has(first, "imed out")) throw TimeoutError(concat(what, ": ", first));
  const bool closed = has(first, "closed by peer") || has(first, "reset by peer") ||
                      has(first, "roken pipe") || has(first, "pair closure");
  throw CommError(concat(
      what, closed ? ": another rank has ended or given up, or is out of reach: " : ": ", first));
}

}  // namespace lockstep
