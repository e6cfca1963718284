#include "lockstep/comm/c10d_work.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Gloo's messages begin with a file of its source and go on with advice and a backtrace.
std::string in_short(const std::string& message) {
  const std::string text =
      message.substr(0, std::min(message.find('\n'), message.find(". This is typically")));
  const auto source = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return source == std::string::npos ? text : text.substr(source + 2);
}

[[noreturn]] void throw_comm_error(const std::string& text) {
  if (has(text, "imed out")) throw TimeoutError(text);
  throw CommError(text);
}

[[noreturn]] void fail(const C10dCall& call, const std::exception& error) {
  const auto group = call.group.lock();
  const std::string aborted = group ? group->abort_reason() : "";
  if (!aborted.empty()) throw_comm_error(concat(call.what, ": ", aborted));
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
  const std::string first = in_short(error.what());
  if (has(first, "Application timeout"))
    throw TimeoutError(concat(what, ": other work of this rank in the group has timed out"));
  const bool closed =
      has(first, "closed by peer") || has(first, "reset by peer") || has(first, "roken pipe");
  throw_comm_error(concat(
      what, closed ? ": another rank has ended or given up, or is out of reach: " : ": ", first));
}

}  // namespace lockstep
