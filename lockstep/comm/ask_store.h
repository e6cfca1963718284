#pragma once

#include <chrono>
#include <exception>
#include <string>

#include "lockstep/comm/quiet_log.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/within.h"
#include "lockstep/core/error.h"

namespace lockstep {

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
    throw CommError(concat(topic, ": the store does not answer: ", first_line(error)));
  }
  throw TimeoutError(
      concat(topic, ": the store has not answered for ", timeout.count(), " ms; is rank 0 alive?"));
}

}  // namespace lockstep
