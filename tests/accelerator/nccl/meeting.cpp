#include "tests/accelerator/nccl/meeting.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tests/accelerator/runtime.h"

namespace lockstep::emulated {
namespace {

struct LaunchedCall {
  std::shared_ptr<Ring> ring;
  Place* place;
  std::int64_t number, begin;  ///< which call, and the parts that had come to the calls before
  Mark come, end;
};

/// A thread that does what devices do while nobody in their process waits for them: comes to the
/// calls that other ranks have come to, and ends those whose kernels have run.
class Engine {
 public:
  static Engine& get() {
    static Engine* const kEngine = new Engine;  // runs until the process ends
    return *kEngine;
  }

  void add(LaunchedCall call) {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(call));
    is_added_.notify_one();
  }

 private:
  Engine() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    constexpr auto kPause = std::chrono::microseconds(100);
    for (;;) {
      take_added();
      if (std::erase_if(calls_, &has_ended) == 0) std::this_thread::sleep_for(kPause);
    }
  }

  void take_added() {
    std::unique_lock lock(mutex_);
    if (calls_.empty()) is_added_.wait(lock, [this] { return !added_.empty(); });
    std::ranges::move(added_, std::back_inserter(calls_));
    added_.clear();
  }

  static bool has_ended(const LaunchedCall& call) {
    if (call.place->come > call.begin) come(call);
    if (call.place->done <= call.number && !call.ring->is_aborted()) return false;
    streams().close(call.end.stream);
    return true;
  }

  // Whoever waits for the stream is told what was thrown.
  static void come(const LaunchedCall& call) try {
    streams().advance(call.come);
  } catch (const std::exception&) {
    call.ring->abort();
  }

  std::mutex mutex_;
  std::condition_variable is_added_;
  std::vector<LaunchedCall> added_, calls_;
};

void launch_at(Mark arrival, const std::shared_ptr<Ring>& ring, const PendingCall& pending) {
  const auto& [call, stream, end] = pending;
  streams().wait(end.stream, arrival);
  streams().enqueue(end.stream, [ring, call = call] { ring->come(call); });
  Engine::get().add(
      {ring, call.place, call.number, call.number * call.parts, streams().mark(end.stream), end});
}

}  // namespace

void Launches::add(PendingCall call) {
  call.call.place->connected |= 1U << static_cast<unsigned>(call.call.part);
  calls_.push_back(std::move(call));
}

bool Launches::is_connected() const {
  return std::ranges::all_of(calls_, [](const PendingCall& pending) {
    return std::popcount(pending.call.place->connected.load()) == pending.call.parts;
  });
}

// Calls of a group begin together.
bool Launches::try_launch() {
  if (!is_connected()) return false;
  std::vector<Mark> arrivals;
  for (const PendingCall& call : calls_) arrivals.push_back(streams().mark(call.stream));
  for (std::size_t i = 0; i < calls_.size(); ++i) launch_at(arrivals[i], ring_, calls_[i]);
  for (const PendingCall& call : calls_) streams().wait(call.stream, call.end);
  calls_.clear();
  return true;
}

bool Launches::launch() {
  constexpr auto kPause = std::chrono::milliseconds(1);
  while (!try_launch()) {
    if (ring_->is_aborted()) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace lockstep::emulated
