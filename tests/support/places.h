#pragma once

#include <cstdlib>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/module.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep::testing {

/// Says whether the suite runs on emulated devices.
inline bool on_devices() { return std::getenv("LOCKSTEP_TEST_DEVICE") != nullptr; }

/// Returns places to test in: sets of cores, or emulated devices where the suite runs on those.
inline std::vector<Place> places(int count) {
  if (!on_devices()) return cpu_places(count);
  std::vector<Place> places;
  for (int index = 0; index < count; ++index)
    places.push_back(
        {torch::Device(torch::kPrivateUse1, static_cast<torch::DeviceIndex>(index % 4)), {}});
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
  return c10::impl::VirtualGuardImpl(torch::kPrivateUse1).getDevice();
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
