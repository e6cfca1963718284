// The file that names what is CUDA's; that of NCCL is comm/device/nccl_api.cpp.

#include <dlfcn.h>
#include <filesystem>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "lockstep/core/error.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"

namespace lockstep {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";

// Beside the LibTorch that this program has loaded: another one would not fit.
std::filesystem::path folder_of_libtorch() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&at::accelerator::getAccelerator), &info);
  return std::filesystem::path(info.dli_fname == nullptr ? "" : info.dli_fname).parent_path();
}

std::string open_library(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file))
    return concat("this LibTorch computes on the CPU alone: ", file.parent_path().string(),
        " has no ", kLibrary,
        "; build with one for CUDA (./dev setup --gpu, or LOCKSTEP_TORCH_DIR)");
  // Global: operators of other libraries resolve against it.
  if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
  return concat("LibTorch's part for CUDA cannot be loaded: ", ::dlerror(),
      "; ./dev setup --gpu brings the libraries that it needs");
}

bool has_nvidia_driver() {
  std::error_code none;
  return std::filesystem::exists("/proc/driver/nvidia/version", none) ||
         std::filesystem::exists("/dev/nvidiactl", none) ||
         std::filesystem::exists("/dev/dxg", none);
}

}  // namespace

// What LibTorch was asked for before the library was there, it keeps; only it knows.
std::string load_cuda_from(const std::filesystem::path& folder) {
  const bool is_there = c10::impl::hasDeviceGuardImpl(c10::kCUDA);
  const std::string reason = is_there ? "" : open_library(folder / kLibrary);
  if (!reason.empty() || at::detail::getCUDAHooks().isBuilt()) return reason;
  return "LibTorch was asked for CUDA before its part for CUDA was loaded, and keeps the answer; "
         "call load_cuda() first, before torch::manual_seed() and the like";
}

std::string load_cuda() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return load_cuda_from(folder_of_libtorch());
}

void allow_tf32(bool matrix_products, bool convolutions) {
  at::globalContext().setAllowTF32CuBLAS(matrix_products);
  at::globalContext().setAllowTF32CuDNN(convolutions);
}

void time_convolutions() { at::globalContext().setBenchmarkCuDNN(true); }

ExactFloat32::ExactFloat32()
    : products_(at::globalContext().allowTF32CuBLAS()),
      convolutions_(at::globalContext().allowTF32CuDNN()) {
  allow_tf32(false, false);
}

ExactFloat32::~ExactFloat32() { allow_tf32(products_, convolutions_); }

std::optional<torch::DeviceType> driven_type() {
  return has_nvidia_driver() ? std::optional(torch::kCUDA) : std::nullopt;
}

std::string reason_against(torch::DeviceType type) {
  if (type == torch::kCUDA) {
    const std::string reason = load_cuda();
    if (!reason.empty()) return reason;
  }
  if (device_count(type) > 0) return "";
  if (type != torch::kCUDA)
    return concat("LibTorch has no device of type ", device_type_name(type), " here");
  return has_nvidia_driver()
             ? "there is an NVIDIA driver, but no GPU that LibTorch can use: see nvidia-smi, and "
               "CUDA_VISIBLE_DEVICES"
             : "this host has no NVIDIA driver, or none that is visible here";
}

}  // namespace lockstep
