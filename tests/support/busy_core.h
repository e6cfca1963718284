#pragma once

// How a thread waits while another one wants its core.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <thread>

namespace lockstep::testing {

/// Lets the calling thread run on the first of its cores alone.
inline void pin_to_first_core() {
  cpu_set_t mask;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mask), &mask), 0);
  std::size_t core = 0;
  while (!CPU_ISSET(core, &mask)) ++core;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(mask), &mask), 0);
}

/// A thread that computes on the first core as long as this lives.
class BusyThread {
 public:
  BusyThread()
      : thread_([this] {
          pin_to_first_core();
          while (!ends_) ++turns_;
        }) {}
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;
  ~BusyThread() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> turns_{0};
  std::thread thread_;
};

/// The number of times that a thread gave up its core.
struct Switches {
  long voluntary = 0;    ///< to sleep
  long involuntary = 0;  ///< although it could go on: it was computing, or spinning
};

/// Counts them for the calling thread during the call.
inline Switches switches_of(const std::function<void()>& call) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_THREAD, &before);
  call();
  ::getrusage(RUSAGE_THREAD, &after);
  return {after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw};
}

}  // namespace lockstep::testing
