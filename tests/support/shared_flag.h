#pragma once

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <new>
#include <sys/mman.h>
#include <thread>

namespace lockstep::testing {

/// A flag that threads and forked processes share.
class SharedFlag {
 public:
  SharedFlag()
      : flag_(new (::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>(false)) {}
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  ~SharedFlag() { ::munmap(flag_, sizeof(std::atomic<bool>)); }

  void raise() { *flag_ = true; }

  /// Waits until it is raised; the test fails if that takes minutes.
  void wait() {
    for (int turn = 0; !*flag_ && turn < 120'000; ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(*flag_) << "the other rank did not come so far";
  }

 private:
  std::atomic<bool>* flag_;
};

}  // namespace lockstep::testing
