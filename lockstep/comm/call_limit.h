#pragma once

#include <chrono>
#include <optional>
#include <utility>

namespace lockstep {

/// Gives the calls that this thread begins a limit of their own, as long as it lives; the group's
/// timeout and the calls of other threads stay as they are. In host memory and over Gloo.
class CallLimit {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Nothing: the group's timeout holds.
  explicit CallLimit(std::optional<Milliseconds> limit) : before_(std::exchange(current, limit)) {}
  ~CallLimit() { current = before_; }
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  static std::optional<Milliseconds> of_this_thread() { return current; }

 private:
  inline static thread_local std::optional<Milliseconds> current;

  std::optional<Milliseconds> before_;
};

}  // namespace lockstep
