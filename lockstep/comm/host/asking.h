#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep::host {

/// Counts how long somebody has been asking for work that is not done, so that a loop on
/// Work::done() sees lost peers and the deadline as Work::wait() does.
///
/// A pause between two questions counts as a second at most: whoever computes has not waited.
class Asking {
 public:
  /// Counts one question; returns whether it is time to look, about every millisecond.
  bool ask() {
    const auto now = Clock::now();
    asked_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
    if (now - looked_ < std::chrono::milliseconds(1)) return false;
    looked_ = now;
    return true;
  }

  std::chrono::milliseconds asked() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(asked_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_ = Clock::now(), looked_ = last_;
  Clock::duration asked_ = {};
};

}  // namespace lockstep::host
