#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include <sched.h>

namespace lockstep::host {

/// Waits a little longer each time: spins, then yields the core, then sleeps.
///
/// Spinning gives the lowest latency where each rank has its own core; yielding lets the
/// awaited rank run where it has not; sleeping spares the machine when a rank computes for long.
class Backoff {
 public:
  /// Waits; says now and then (about every millisecond) that it is time to look for lost peers and
  /// the deadline.
  bool wait() {
    ++turns_;
    if (turns_ <= kSpins) return pause(), false;
    if (turns_ <= kSpins + kYields) return ::sched_yield(), turns_ % 256 == 0;
    std::this_thread::sleep_for(
        std::chrono::microseconds(turns_ < kSpins + 2 * kYields ? 100 : 500));
    return true;
  }

 private:
  static constexpr std::uint32_t kSpins = 200, kYields = 4000;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::uint32_t turns_ = 0;
};

}  // namespace lockstep::host
