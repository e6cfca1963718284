#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "lockstep/comm/store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

/// Keeps LibTorch's own log silent while any object of this type exists: its lines about a store
/// have a page of C++ frames each, and what matters is in our errors. Does nothing for a user who
/// asks for the log by TORCH_CPP_LOG_LEVEL.
class QuietLog {
 public:
  QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
  ~QuietLog();
};

/// No thread can begin, as where a container may have no more processes.
class ThreadNotStarted : public std::system_error {
 public:
  using std::system_error::system_error;
};

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
  auto job = [promise = std::move(promise), owned = std::optional(std::move(call))]() mutable {
    try {
      Result answer = (*owned)();
      owned.reset();
      promise.set_value(std::move(answer));
    } catch (...) {
      owned.reset();
      promise.set_exception(std::current_exception());
    }
  };
  std::thread thread;
  try {
    thread = std::thread(std::move(job));
  } catch (const std::system_error& error) {
    throw ThreadNotStarted(error.code(), "start a thread");
  }
  if (result.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    return std::nullopt;
  }
  thread.join();  // it has nothing left to do, and nobody finds it later among the threads
  return result.get();
}

/// Makes calls to a store that may never be answered, as when rank 0's host hangs: the calls end by
/// themselves after `timeout` if the store does answer. They own all that they use.
///
/// Throws our errors with the topic before them, CommError for those of the store, ThreadNotStarted
/// where nobody can ask.
template <typename Calls>
auto ask_store(const std::string& topic, std::chrono::milliseconds timeout, Calls calls) {
  constexpr std::chrono::seconds kOneAnswer(2);
  const auto quietly = [calls = std::move(calls)] {
    const QuietLog quiet;
    return calls();
  };
  try {
    if (auto answer = within(timeout + kOneAnswer, quietly)) return *std::move(answer);
  } catch (const TimeoutError& error) {
    throw TimeoutError(concat(topic, ": ", error.what()));
  } catch (const Error&) {
    throw;
  } catch (const ThreadNotStarted&) {
    throw;  // this host's fault: another try would end in the same way
  } catch (const std::exception& error) {
    throw CommError(concat(topic, ": the store does not answer: ", first_line(error.what())));
  }
  throw TimeoutError(
      concat(topic, ": the store has not answered for ", timeout.count(), " ms; is rank 0 alive?"));
}

}  // namespace lockstep
