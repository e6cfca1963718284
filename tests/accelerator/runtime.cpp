#include "tests/accelerator/runtime.h"

#include <chrono>
#include <utility>

#include <c10/util/Exception.h>

namespace lockstep::emulated {
namespace {

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, Runtime::kDevices> streams = {};
};

Current& current_of_thread() {
  thread_local Current current;
  return current;
}

std::int64_t& own_waits() {
  thread_local std::int64_t waits = 0;
  return waits;
}

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

}  // namespace

Runtime& Runtime::get() {
  static Runtime* const kRuntime = new Runtime;  // memory may be freed by other static objects
  return *kRuntime;
}

Runtime::Runtime() {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    memory_[index_of(device)] = std::make_unique<DeviceMemory>(streams_);
    make_stream(device);  // the default stream
  }
}

std::size_t Runtime::index_of(c10::DeviceIndex device) {
  TORCH_CHECK(
      device >= 0 && device < kDevices, "emulated accelerator: there is no device ", int{device});
  return static_cast<std::size_t>(device);
}

c10::DeviceIndex Runtime::device_of(const void* address) const {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device)
    if (memory_[index_of(device)]->holds(address)) return device;
  return -1;
}

c10::Stream Runtime::make_stream(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  auto& numbers = numbers_[index_of(device)];
  numbers.push_back(streams_.make());
  return stream_of(device, static_cast<c10::StreamId>(numbers.size() - 1));
}

std::size_t Runtime::number_of(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  return numbers_[index_of(stream.device_index())].at(static_cast<std::size_t>(stream.id()));
}

void Runtime::finish(c10::DeviceIndex device) {
  std::vector<std::size_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers = numbers_[index_of(device)];
  }
  for (const std::size_t number : numbers) streams_.finish(streams_.mark(number));
}

c10::DeviceIndex Runtime::current_device() const { return current_of_thread().device; }

void Runtime::set_current_device(c10::DeviceIndex device) const {
  index_of(device);
  current_of_thread().device = device;
}

c10::Stream Runtime::current_stream(c10::DeviceIndex device) const {
  return stream_of(device, current_of_thread().streams[index_of(device)]);
}

void Runtime::set_current_stream(const c10::Stream& stream) const {
  current_of_thread().streams[index_of(stream.device_index())] = stream.id();
}

void Runtime::count(std::int64_t Counts::*what) {
  const std::lock_guard lock(mutex_);
  ++(counts_.*what);
  if (what != &Counts::host_waits) return;
  ++own_waits();
  ++waits_;
  waited_.notify_all();
}

std::int64_t Runtime::waits_of_this_thread() { return own_waits(); }

void Runtime::set_late_events(bool late) {
  const std::lock_guard lock(mutex_);
  has_late_events_ = late;
}

// The others may be over.
void Runtime::let_others_wait_first() {
  constexpr std::chrono::milliseconds kMost{300};
  std::unique_lock lock(mutex_);
  if (!has_late_events_) return;
  waited_.wait_for(lock, kMost, [this, before = waits_] { return waits_ > before; });
}

Counts Runtime::take_counts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

}  // namespace lockstep::emulated
