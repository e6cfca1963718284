#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep {

/// No thread can begin, as where a container may have no more processes.
class ThreadNotStarted : public std::system_error {
 public:
  using std::system_error::system_error;
};

namespace detail {

template <typename Job>
void detached(Job job) {
  std::thread thread;
  try {
    thread = std::thread(std::move(job));
  } catch (const std::system_error& error) {
    throw ThreadNotStarted(error.code(), "start a thread");
  }
  thread.detach();
}

}  // namespace detail

/// Returns what a call returns, or throws what it throws, or returns nothing after `limit`: then
/// its thread stays behind, so the call must own all that it uses. What it owns is released before
/// this returns its answer: a store that was asked last is closed, and its port is free. For calls
/// into LibTorch and the system that may wait without end.
template <typename Call>
auto within(std::chrono::milliseconds limit, Call call)
    -> std::optional<std::invoke_result_t<Call>> {
  using Result = std::invoke_result_t<Call>;
  std::promise<Result> promise;
  std::future<Result> result = promise.get_future();
  detail::detached(
      [promise = std::move(promise), owned = std::optional(std::move(call))]() mutable {
        try {
          Result answer = (*owned)();
          owned.reset();
          promise.set_value(std::move(answer));
        } catch (...) {
          owned.reset();
          promise.set_exception(std::current_exception());
        }
      });
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace lockstep
