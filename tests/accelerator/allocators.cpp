#include <cstddef>
#include <mutex>
#include <utility>

#include "tests/accelerator/runtime.h"
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace lockstep::emulated {
namespace {

void free_on_device(void* address) {
  Runtime& runtime = Runtime::get();
  runtime.memory(runtime.device_of(address)).free(address);
}

void free_pinned(void* address) { Runtime::get().pinned().free(address); }

/// Memory of the current device, for its current stream.
class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Runtime& runtime = Runtime::get();
    const c10::DeviceIndex index = runtime.current_device();
    const c10::Device device(c10::kPrivateUse1, index);
    if (bytes == 0) return {nullptr, device};
    void* const address = runtime.memory(index).allocate(bytes, runtime.current(index));
    return {address, address, &free_on_device, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_on_device; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Runtime& runtime = Runtime::get();
    const c10::DeviceIndex device = runtime.device_of(to);
    void* const target = runtime.memory(device).inside(to);
    const void* const source = runtime.memory(runtime.device_of(from)).inside(from);
    runtime.count(&Counts::copies_on_device);
    runtime.streams().enqueue(runtime.current(device), [=] { std::memcpy(target, source, bytes); });
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() == nullptr) return;
    Runtime& runtime = Runtime::get();
    runtime.memory(data.device().index()).record(data.get(), runtime.number_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

/// Pinned memory of the host.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    void* const address = Runtime::get().pinned().allocate(bytes);
    return {address, address, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  bool record_event(void*, void* context, c10::Stream stream) override {
    return Runtime::get().pinned().record(context, Runtime::get().number_of(stream));
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

void install_allocators() {
  static DeviceAllocator device;
  static PinnedAllocator pinned;
  c10::SetAllocator(c10::kPrivateUse1, &device);
  at::setHostAllocator(c10::kPrivateUse1, &pinned);
}

}  // namespace lockstep::emulated
