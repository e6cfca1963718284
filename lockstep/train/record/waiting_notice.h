#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/core/stopwatch.h"

namespace lockstep {

/// A notice on stderr, about every ten seconds, of what takes long; nothing of what is over sooner.
///
///     WaitingNotice notice;
///     notice.begin("evaluating");   // evaluating: 10.0 s so far
///     notice.end();
class WaitingNotice {
 public:
  explicit WaitingNotice(std::chrono::milliseconds interval = std::chrono::seconds(10));
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;

  /// Begins to wait; what was waited for before is over.
  void begin(const std::string& what);
  void end() { begin(""); }

  /// Returns how many lines it has written.
  int lines() const;

 private:
  void watch(const std::stop_token& stop);
  void tell();

  std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::string what_;  ///< empty: nothing
  Stopwatch since_;
  int lines_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lockstep
