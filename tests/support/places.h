#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep::testing {

/// Says whether the suite runs on devices: emulated ones, or with LOCKSTEP_TEST_DEVICE=cuda on
/// GPUs.
inline bool on_devices() { return std::getenv("LOCKSTEP_TEST_DEVICE") != nullptr; }

/// Returns the type of the devices that the suite runs on.
inline torch::DeviceType device_type() {
  const char* const asked = std::getenv("LOCKSTEP_TEST_DEVICE");
  return asked != nullptr && std::string_view(asked) == "cuda" ? torch::kCUDA : torch::kPrivateUse1;
}

/// Returns how many devices the suite runs on.
inline int device_count() { return c10::impl::VirtualGuardImpl(device_type()).deviceCount(); }

/// Returns the device with that number; where there are fewer, several numbers are the same one.
inline torch::Device device(int number) {
  return {device_type(), static_cast<torch::DeviceIndex>(number % device_count())};
}

/// Returns places to test in: sets of cores, or devices where the suite runs on those.
inline std::vector<Place> places(int count) {
  if (!on_devices()) return cpu_places(count);
  std::vector<Place> places;
  for (int number = 0; number < count; ++number) places.push_back({device(number), {}});
  return places;
}

/// Returns the group, made to carry tensors of these places too.
inline ProcessGroup carrying(const ProcessGroup& group, const std::vector<Place>& places) {
  if (!on_devices()) return group;
  std::vector<torch::Device> devices;
  for (const Place& place : places) devices.push_back(place.device);
  return group.with_devices(devices);
}

/// Returns the device of the calling thread: a rank's own, see run_ranks() of group_factory.h.
inline torch::Device this_device() {
  if (!on_devices()) return torch::kCPU;
  return c10::impl::VirtualGuardImpl(device_type()).getDevice();
}

/// Returns the tensor on the calling thread's device: itself if it is there.
inline torch::Tensor here(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.to(this_device()) : tensor;
}

/// Returns this rank's part of a batch, here.
inline torch::Tensor share_here(const torch::Tensor& batch, const ProcessGroup& group) {
  return here(batch.tensor_split(group.size())[static_cast<std::size_t>(group.rank())]);
}

/// Moves the module to the calling thread's device.
inline void bring_here(torch::nn::Module& module) { module.to(this_device()); }

}  // namespace lockstep::testing
