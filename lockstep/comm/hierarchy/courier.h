#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::hierarchy {

/// A thread that advances messages through shared memory while their rank does something else. A
/// rank that waits for a message of another node does not look at its mailboxes, and the one that
/// its neighbour waits for may lie there.
class Courier {
 public:
  /// `advance` moves what can be moved and returns whether something is still under way.
  explicit Courier(std::function<bool()> advance) : advance_(std::move(advance)) {}
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Tells that a message was begun; the first one starts the thread.
  void call();

 private:
  void run();

  std::function<bool()> advance_;
  std::mutex mutex_;
  std::condition_variable called_changed_;
  bool called_ = false, stopped_ = false;
  std::thread thread_;
};

}  // namespace lockstep::hierarchy
