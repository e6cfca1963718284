#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep::host {

/// Says whether other threads want the core of this one: whether the kernel has lately taken it
/// away several times.
bool core_is_contested();

/// Says how often to look before sleeping, in one wait.
///
/// Note [Waits]
/// A rank that spins sees within a microsecond what it waits for, one that sleeps after some
/// twenty. But where another thread wants the core, each turn is taken from the time slice in which
/// the rank would compute, and the other thread may be the very rank that is awaited. To yield is
/// no way out: the kernel counts the rest of the slice as used. So a rank spins for a millisecond
/// where it has its core to itself; where it has not, for no longer than a sleep costs.
class Backoff {
 public:
  /// `is_crowded`: ranks outnumber the cores.
  explicit Backoff(bool is_crowded) : most_(is_crowded ? kFewTurns : kMostTurns) {}

  /// Spins one turn, or returns false: then it is time to sleep. `shares_core()` says whether an
  /// awaited rank was last seen on this core.
  template <typename SharesCore>
  bool spin(SharesCore shares_core) {
    if (++turns_ > most_) return false;
    if (turns_ % kTurnsPerLook == 1 && shares_core()) most_ = 0;
    if (turns_ % kTurnsPerCount == kFewTurns && core_is_contested()) most_ = 0;
    pause();
    return most_ > 0;
  }

  /// Returns for how long to sleep at most: longer each time, as the other ranks' processes have to
  /// be looked after in between.
  std::chrono::milliseconds longest_sleep() {
    return std::exchange(longest_sleep_, std::min(2 * longest_sleep_, kLongestSleep));
  }

  /// Begins anew after something has happened: what is left to wait for is near.
  void wake() {
    turns_ = 0;
    most_ = kFewTurns;
    longest_sleep_ = kFirstSleep;
  }

 private:
  static constexpr int kMostTurns = 20'000, kFewTurns = 64, kTurnsPerLook = 16,
                       kTurnsPerCount = 256;
  static constexpr std::chrono::milliseconds kFirstSleep{1}, kLongestSleep{16};

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int turns_ = 0, most_;
  std::chrono::milliseconds longest_sleep_ = kFirstSleep;
};

}  // namespace lockstep::host
