#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/accelerator/memory.h"
#include "tests/accelerator/streams.h"
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace lockstep::emulated {

/// The devices of this process: what the registered guard, allocator and kernels work on.
class Runtime {
 public:
  static constexpr c10::DeviceIndex kDevices = 4;

  /// Returns the only one; it lives until the process ends.
  static Runtime& get();

  Streams& streams() { return streams_; }
  PinnedMemory& pinned() { return pinned_; }
  DeviceMemory& memory(c10::DeviceIndex device) { return *memory_[index_of(device)]; }

  /// Returns the device that an address belongs to, or -1.
  c10::DeviceIndex device_of(const void* address) const;

  /// Makes a stream of a device.
  c10::Stream make_stream(c10::DeviceIndex device);

  /// Returns the number that a stream has in streams().
  std::size_t number_of(const c10::Stream& stream);

  /// Runs all work of a device.
  void finish(c10::DeviceIndex device);

  /// Returns the calling thread's current device, and sets it.
  c10::DeviceIndex current_device() const;
  void set_current_device(c10::DeviceIndex device) const;

  /// Returns the calling thread's current stream on a device, and sets it for the stream's device.
  c10::Stream current_stream(c10::DeviceIndex device) const;
  void set_current_stream(const c10::Stream& stream) const;

  /// Returns the number of the calling thread's current stream on a device.
  std::size_t current(c10::DeviceIndex device) { return number_of(current_stream(device)); }

  /// Runs what the mark needs while the host waits.
  void finish_as_host(Mark mark) {
    streams_.finish(mark);
    count(&Counts::host_waits);
  }

  /// Keeps a device's memory, when it is freed, until the stream has done what was queued on it by
  /// then.
  void record(const c10::DataPtr& data, const c10::Stream& stream) {
    if (data.get() == nullptr) return;
    memory(data.device().index()).record(data.get(), number_of(stream));
  }

  /// Counts one more, and returns what was counted since the last call, on all threads.
  void count(std::int64_t Counts::*what);
  Counts take_counts();

  /// Returns how many times the calling thread has waited, as a host.
  static std::int64_t waits_of_this_thread();

  /// With late events, who waits for one goes on after another thread has waited, or after a while:
  /// so that what was given to the other streams comes first.
  void set_late_events(bool late);
  void let_others_wait_first();

 private:
  Runtime();
  static std::size_t index_of(c10::DeviceIndex device);

  Streams streams_;
  PinnedMemory pinned_{streams_};
  std::array<std::unique_ptr<DeviceMemory>, kDevices> memory_;
  std::mutex mutex_;
  std::array<std::vector<std::size_t>, kDevices> numbers_;  // by stream id
  Counts counts_;
  std::condition_variable waited_;
  std::int64_t waits_ = 0;
  bool has_late_events_ = false;
};

/// Returns the queues of all devices.
inline Streams& streams() { return Runtime::get().streams(); }

/// Makes the devices known to LibTorch as `emulated:0` and so on. To be called once, before their
/// first use.
void install();

}  // namespace lockstep::emulated
