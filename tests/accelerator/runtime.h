#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/accelerator/memory.h"
#include "tests/accelerator/streams.h"
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

  /// Counts one more, and returns what was counted since the last call, on all threads.
  void count(std::int64_t Counts::*what);
  Counts take_counts();

 private:
  Runtime();
  static std::size_t index_of(c10::DeviceIndex device);

  Streams streams_;
  PinnedMemory pinned_{streams_};
  std::array<std::unique_ptr<DeviceMemory>, kDevices> memory_;
  std::mutex mutex_;
  std::array<std::vector<std::size_t>, kDevices> numbers_;  // by stream id
  Counts counts_;
};

/// Returns the queues of all devices.
inline Streams& streams() { return Runtime::get().streams(); }

/// Makes the devices known to LibTorch as `emulated:0` and so on. To be called once, before their
/// first use.
void install();

}  // namespace lockstep::emulated
