#pragma once

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include "lockstep/parallel/place/place.h"

namespace lockstep {

/// A lasting thread that computes in a place: pinned to its cores with as many OpenMP threads as
/// cores, or with its accelerator as the current device.
///
/// One thread at a time gives it tasks, one after the other. That thread's modes are not taken
/// over: see ThreadModes.
///
///     PlaceWorker worker(place, "replica 1");
///     worker.begin([&] { output = net->forward(input); });
///     worker.wait();   // throws what the task threw
class PlaceWorker {
 public:
  /// Starts the thread. The first 15 bytes of the name are what `top -H` and debuggers show. Throws
  /// std::system_error if the thread cannot be pinned to the cores.
  PlaceWorker(Place place, const std::string& name);

  /// Waits for the task that is under way, whose exception is then lost, and ends the thread.
  ~PlaceWorker();
  PlaceWorker(const PlaceWorker&) = delete;
  PlaceWorker& operator=(const PlaceWorker&) = delete;

  /// Begins a task. Throws InvalidArgument if the one before has not been waited for.
  void begin(std::function<void()> task);

  /// Waits for the end of the task, and throws what it threw; returns at once if there is none.
  void wait();

  const Place& place() const { return place_; }

 private:
  // idle -begin-> working -> done -wait-> idle
  enum class State { kIdle, kWorking, kDone, kStopped };

  void start(const std::string& name);
  void run();
  void do_task();
  State wait_while(State state);
  State wait_while_unemployed();
  void set(State state);

  Place place_;
  std::atomic<State> state_{State::kIdle};
  // Note [Waits]: std::atomic's own wait yields before it sleeps.
  std::mutex mutex_;
  std::condition_variable changed_;
  // The state decides which thread may touch these two.
  std::function<void()> task_;
  std::exception_ptr exception_;
  std::thread thread_;
};

/// The modes that LibTorch keeps per thread and a worker must take over: gradients on or off,
/// inference mode, autocast with its types and cache, hooks on saved tensors, the current streams
/// of accelerators, the treatment of denormal numbers.
///
/// A new thread has autocast off and gradients on, whatever its creator had: without this, a
/// replica in a thread would compute something else than the module in the caller's.
///
///     ThreadModes modes;                                  // those of this thread
///     worker.begin([&] { ThreadModes::Scope scope(modes); output = net->forward(input); });
class ThreadModes {
 public:
  /// Captures the modes of the calling thread.
  ThreadModes();

  class Scope;

 private:
  void install_what_the_state_lacks() const;

  at::ThreadLocalState state_;
  // Not in the state of every LibTorch that we support.
  std::vector<std::pair<c10::DeviceType, c10::ScalarType>> autocast_types_;
  bool autocast_cache_;
  std::vector<c10::Stream> streams_;  // of each accelerator, if there are any
  std::fenv_t arithmetic_;
};

/// Puts captured modes in force in the calling thread for as long as it lives.
class ThreadModes::Scope {
 public:
  explicit Scope(const ThreadModes& modes);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ThreadModes outer_;  // captured before the guard changes the thread
  at::ThreadLocalStateGuard guard_;
};

}  // namespace lockstep
