#include <cstdint>

#include "tests/accelerator/runtime.h"
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace lockstep::emulated {
namespace {

void finish_as_host(Mark mark) {
  streams().finish(mark);
  Runtime::get().count(&Counts::host_waits);
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
    finish_as_host(end_of(stream));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Runtime::get().finish(device);
    Runtime::get().count(&Counts::host_waits);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() == nullptr) return;
    Runtime::get()
        .memory(data.device().index())
        .record(data.get(), Runtime::get().number_of(stream));
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
    finish_as_host(mark_of(event));
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

}  // namespace

void install_guard() {
  static const Guard kGuard;
  c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, &kGuard);
}

}  // namespace lockstep::emulated
