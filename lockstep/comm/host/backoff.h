#pragma once

#include <chrono>
#include <cstdint>
#include <sched.h>
#include <thread>

namespace lockstep::host {

/// Waits a little longer each time: spins, then yields the core, then sleeps.
///
/// Spinning gives the lowest latency where each rank has its own core; yielding lets the awaited
/// rank run where it has not; sleeping spares the machine when a rank computes for long.
class Backoff {
 public:
  /// Waits once; `shares_core()` says whether an awaited rank was last seen on this core: then each
  /// spin would only keep that rank from running.
  template <typename SharesCore>
  void wait(SharesCore shares_core) {
    ++turns_;
    const bool spins = turns_ <= kSpins;
    if (spins && (turns_ % kSpinsPerLook != 1 || !shares_core())) return pause();
    if (turns_ <= kSpins + kYields) return static_cast<void>(::sched_yield());
    std::this_thread::sleep_for(
        std::chrono::microseconds(turns_ < kSpins + 2 * kYields ? 100 : 500));
  }

 private:
  static constexpr std::uint32_t kSpins = 1000, kYields = 4000, kSpinsPerLook = 16;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::uint32_t turns_ = 0;
};

}  // namespace lockstep::host
