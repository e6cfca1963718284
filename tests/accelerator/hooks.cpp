#include <algorithm>
#include <cstddef>
#include <utility>

#include "tests/accelerator/generator.h"
#include "tests/accelerator/runtime.h"
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

namespace lockstep::emulated {
namespace {

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

}  // namespace

void install_hooks() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace lockstep::emulated
