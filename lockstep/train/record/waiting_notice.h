#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace lockstep {

/// Says on stderr what takes long: a line each ten seconds of its life, none before.
///
///     const WaitingNotice notice("evaluating");   // evaluating: 10 s so far
class WaitingNotice {
 public:
  explicit WaitingNotice(
      std::string what, std::chrono::milliseconds interval = std::chrono::seconds(10));
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;

  /// Returns how many lines it has written.
  int lines() const { return lines_; }

 private:
  void tell(const std::stop_token& stop) const;

  std::string what_;
  std::chrono::milliseconds interval_;
  mutable std::atomic<int> lines_{0};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lockstep
