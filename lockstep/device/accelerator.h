#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

namespace lockstep {

/// Returns the type of accelerator that LibTorch has a backend for, whether or not there is a
/// device; nothing if it has none, as long as nobody called load_cuda(), which may be called after
/// this.
std::optional<torch::DeviceType> accelerator_type();

/// Returns how many devices of a type there are; 0 without a backend or a driver.
int device_count(torch::DeviceType type);

/// Returns a type's name as a device is written: `cuda`, `cpu`.
std::string device_type_name(torch::DeviceType type);

/// Loads the part of LibTorch that computes on NVIDIA GPUs, unless the program has it already. It
/// is half a gigabyte, so nothing loads it before somebody asks for a GPU.
///
/// To be called before what asks LibTorch for CUDA: `torch::manual_seed()`, `torch::cuda`,
/// `backward()`. Returns why that is not possible, and what to do; empty if it is there. Whether
/// there is a driver, and a device, device_count() tells.
std::string load_cuda();

/// Does the same with the LibTorch in this folder.
std::string load_cuda_from(const std::filesystem::path& folder);

/// Returns the type of accelerator that this host has a driver for, whether or not LibTorch's part
/// for it is loaded.
std::optional<torch::DeviceType> driven_type();

/// Returns why nothing can be computed on devices of a type here, and what to do; empty if
/// something can. Loads LibTorch's part for them first.
std::string reason_against(torch::DeviceType type);

/// Makes a device the current one of the calling thread, which is the first of its type otherwise:
/// handling events and streams of another device takes memory on the current one, too. The CPU is
/// the current device of no thread.
void use_device(torch::Device device);

/// Lets the host wait until a device has done all that it was given; without a number, the calling
/// thread's current one of its type. What a CPU was given is done.
void synchronize(torch::Device device);

/// Returns a stream of the device for this caller alone.
c10::Stream side_stream(torch::Device device);

/// Returns the stream that this thread gives work on a device.
c10::Stream current_stream(torch::Device device);

/// Lets a stream wait for all that another has been given so far.
void wait_for(const c10::Stream& waiting, const c10::Stream& awaited);

/// Copies tensors from the host to a device beside what the device computes.
///
/// From pinned memory the copy is on its way when this returns; LibTorch's allocator of pinned
/// memory gives it to nobody else before it has passed. From other memory the host waits.
class DeviceCopier {
 public:
  explicit DeviceCopier(torch::Device device);

  torch::Device device() const { return device_; }

  /// Returns the tensor on the device, which the current stream of this thread waits for; the
  /// tensor itself where the device is the CPU.
  torch::Tensor operator()(const torch::Tensor& tensor);

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

/// Tensors on their way to a device.
struct PeerCopies {
  std::vector<torch::Tensor> tensors = {};
  std::optional<c10::Event> arrived = {};  ///< nothing if none had to be copied

  /// Returns them; the current stream of their device waits until they have come.
  std::vector<torch::Tensor> wait() const;
};

/// Copies tensors from other accelerators to a device, beside what either computes.
///
/// LibTorch copies on the streams that are current, where each device waits for all that the other
/// has been given. These copies have a stream of their own on both devices: they begin when the
/// source's current stream has done what it was given so far, and delay only what waits for them.
/// The memory that they read and write is not reused before they end. For one thread at a time.
class PeerCopier {
 public:
  explicit PeerCopier(torch::Device to) : to_(to) {}

  /// Begins to copy. Tensors of the host, and those that are there already, are passed on.
  PeerCopies operator()(const std::vector<torch::Tensor>& tensors);

 private:
  bool is_elsewhere(const torch::Tensor& tensor) const;
  torch::Tensor begin_copy(const torch::Tensor& tensor);

  torch::Device to_;
  std::optional<c10::Stream> leaving_, arriving_;
};

}  // namespace lockstep
