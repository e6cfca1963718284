#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::host {

/// A word in the ranks' memory on which the threads of one rank sleep until another rank rings.
///
/// Note [Alarms]
/// The sleeper sets its alarm and looks once more; who publishes something looks for alarms that
/// are set. With a fence between the two steps on either side at least one of them sees the other,
/// so no ring is lost. Where all ranks wait for all, as in a round, only the last one rings.
class Alarm {
 public:
  /// Sleeps until the alarm is rung, or for that time at most, unless `done()` holds. Returns
  /// whether something may have happened.
  template <typename Done>
  bool sleep_unless(Done done, std::chrono::milliseconds longest) {
    is_set_.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return done() || sleep(longest);
  }

  /// Wakes who sleeps. The caller has passed a fence since it published what it rings for.
  void ring() {
    if (is_set_.load(std::memory_order_relaxed) != 0) wake();
  }

  /// Returns whether somebody sleeps, or was woken by the time and found nothing.
  bool is_set() const { return is_set_.load(std::memory_order_relaxed) != 0; }

 private:
  bool sleep(std::chrono::milliseconds longest);
  void wake();

  std::atomic<std::uint32_t> is_set_;  // cleared by who rings alone: several threads may sleep
};

}  // namespace lockstep::host
