#pragma once

#include <chrono>

namespace lockstep {

/// The seconds since it was made, on the monotonic clock.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// Starts again from zero and returns what had passed.
  double restart() {
    const double passed = seconds();
    start_ = std::chrono::steady_clock::now();
    return passed;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep
