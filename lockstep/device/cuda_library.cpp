// The only file that names CUDA's libraries.

#include <dlfcn.h>
#include <filesystem>
#include <mutex>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"

namespace lockstep {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";

// Beside the LibTorch that this program has loaded: another one would not fit.
std::filesystem::path folder_of_libtorch() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&at::accelerator::getAccelerator), &info);
  return std::filesystem::path(info.dli_fname == nullptr ? "" : info.dli_fname).parent_path();
}

std::string try_to_load() {
  if (c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return "";
  const std::filesystem::path file = folder_of_libtorch() / kLibrary;
  if (!std::filesystem::exists(file))
    return concat("this LibTorch computes on the CPU alone: ", file.parent_path().string(),
        " has no ", kLibrary,
        "; build with one for CUDA (./dev setup --gpu, or LOCKSTEP_TORCH_DIR)");
  // Global: operators of other libraries resolve against it.
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
  return concat("LibTorch's part for CUDA cannot be loaded: ", ::dlerror(),
      "; ./dev setup --gpu brings the libraries that it needs");
}

}  // namespace

std::string load_cuda() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return try_to_load();
}

bool has_nvidia_driver() {
  std::error_code none;
  return std::filesystem::exists("/proc/driver/nvidia/version", none) ||
         std::filesystem::exists("/dev/nvidiactl", none) ||
         std::filesystem::exists("/dev/dxg", none);
}

}  // namespace lockstep
