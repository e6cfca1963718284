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
#include <torch/types.h>

namespace lockstep::place {

/// Divides cores into `count` >= 1 contiguous sets, the first ones larger by one where it does not
/// come out even. Fewer cores than sets: each set has one core, and sets share cores in turn.
///
///     divide_cores({0, 1, 2}, 2)   // {0, 1} {2}
///     divide_cores({0, 1}, 3)      // {0} {1} {0}
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, int count);

/// Returns cores as ranges: `0-3,8`.
std::string core_ranges(std::vector<int> cores);

}  // namespace lockstep::place

namespace lockstep {

/// The hardware on which one replica or one stage computes: a set of CPU cores, or an accelerator.
///
/// `cores` is empty for an accelerator, and for a CPU place that takes all cores as it finds them.
struct Place {
  torch::Device device = torch::kCPU;
  std::vector<int> cores = {};
  /// Whether its threads stay on these cores. Places that take turns on a core should not: a stage
  /// that has work would wait for its own core while another one is idle.
  bool is_pinned = true;

  bool operator==(const Place&) const = default;
};

/// Divides the cores that the calling thread may use into `count` places, neighbours together.
///
/// More places than cores share the cores in turn, and are not pinned: it works, but nothing is
/// faster, see oversubscribed(). Throws InvalidArgument if count < 1.
///
///     auto places = lockstep::cpu_places(2);   // on four cores: 0-1 and 2-3
std::vector<Place> cpu_places(int count);

/// Returns one place for each accelerator of a type, in the order of their indices; loads
/// LibTorch's part for them first (see load_cuda()), so call it before anything that asks LibTorch
/// for CUDA. Throws InvalidArgument for the CPU, and, with what to do, where there is none.
///
///     auto places = lockstep::device_places(torch::kCUDA);   // cuda:0, cuda:1, ...
std::vector<Place> device_places(torch::DeviceType type);

/// Returns whether two of the places share a core or an accelerator.
bool oversubscribed(const std::vector<Place>& places);

/// Returns a place in words: `cpu cores 0-3`, `cpu`, `cuda:1`.
std::string describe(const Place& place);

/// A lasting thread that computes in a place: with as many OpenMP threads as cores, pinned to them
/// unless they are shared, or with its accelerator as the current device.
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
