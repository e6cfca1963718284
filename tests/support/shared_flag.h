#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <thread>

namespace lockstep::testing {

/// Memory that threads and forked processes share.
template <typename Content>
class SharedMemory {
 public:
  SharedMemory()
      : content_(new (::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Content{}) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { ::munmap(content_, sizeof(Content)); }

  Content& operator*() const { return *content_; }

 private:
  Content* content_;
};

/// A flag that threads and forked processes share.
class SharedFlag {
 public:
  void raise() { *flag_ = true; }

  /// Waits until it is raised; the test fails if that takes minutes.
  void wait() {
    for (int turn = 0; !*flag_ && turn < 120'000; ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(*flag_) << "the other rank did not come so far";
  }

 private:
  SharedMemory<std::atomic<bool>> flag_;
};

/// A text that a forked process writes, which is cut if it is long; empty at first.
class SharedText {
 public:
  void write(const std::string& text) { text.copy((*letters_).data(), (*letters_).size() - 1); }
  std::string text() const { return (*letters_).data(); }

 private:
  SharedMemory<std::array<char, 2000>> letters_;
};

}  // namespace lockstep::testing
