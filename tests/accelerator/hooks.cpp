// What LibTorch asks of a type of device: memory, streams and events, and the rest.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "tests/accelerator/generator.h"
#include "tests/accelerator/runtime.h"
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

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
    Runtime::get().record(data, stream);
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

void install_allocators() {
  static DeviceAllocator device;
  static PinnedAllocator pinned;
  c10::SetAllocator(c10::kPrivateUse1, &device);
  at::setHostAllocator(c10::kPrivateUse1, &pinned);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return Runtime::kDevices; }

  c10::Device getDevice() const override {
    return {c10::kPrivateUse1, Runtime::get().current_device()};
  }
  void setDevice(c10::Device device) const override {
    Runtime::get().set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const override {
    return Runtime::get().current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return Runtime::get().make_stream(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return Runtime::get().make_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    Runtime::get().set_current_stream(stream);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(Runtime::get().number_of(stream) + 1);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return streams().query(end_of(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Runtime::get().finish_as_host(end_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Runtime::get().finish(device);
    Runtime::get().count(&Counts::host_waits);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Runtime::get().record(data, stream);
  }

  void record(
      void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Mark;
    mark_of(*event) = end_of(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) streams().wait(Runtime::get().number_of(stream), mark_of(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || streams().query(mark_of(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    Runtime::get().let_others_wait_first();
    Runtime::get().finish_as_host(mark_of(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Mark*>(event);
  }

 private:
  static Mark& mark_of(void* event) { return *static_cast<Mark*>(event); }
  static Mark end_of(const c10::Stream& stream) {
    return streams().mark(Runtime::get().number_of(stream));
  }
};

void install_guard() {
  static const Guard kGuard;
  c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, &kGuard);
}

using c10::DeviceIndex;

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }

  DeviceIndex deviceCount() const override { return Runtime::kDevices; }
  DeviceIndex getCurrentDevice() const override { return Runtime::get().current_device(); }
  void setCurrentDevice(DeviceIndex device) const override {
    Runtime::get().set_current_device(device);
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }

  bool isPinnedPtr(const void* address) const override {
    return Runtime::get().pinned().holds(address);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(c10::kPrivateUse1);
  }
  at::Device getDeviceFromPtr(void* address) const override {
    const DeviceIndex device = Runtime::get().device_of(address);
    TORCH_CHECK(device >= 0, "emulated accelerator: the address is on no device");
    return {c10::kPrivateUse1, device};
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device < 0 ? getCurrentDevice() : device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? getCurrentDevice() : device);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    const c10::DeviceGuard guard(impl->device());
    c10::DataPtr fresh = impl->allocator()->allocate(bytes);
    const std::size_t kept = std::min(bytes, impl->nbytes());
    if (kept > 0) impl->allocator()->copy_data(fresh.get(), impl->data(), kept);
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(bytes);
  }
};

void install_hooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace

void install() {
  static const bool kOnce = [] {
    c10::register_privateuse1_backend("emulated");
    install_guard();
    install_allocators();
    install_hooks();
    return true;
  }();
  static_cast<void>(kOnce);
}

}  // namespace lockstep::emulated
