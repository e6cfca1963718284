#pragma once

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/runtime.h"
#include <ATen/ops/full.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep::emulated {

/// Returns the emulated device with that number.
inline torch::Device device_at(int number) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(number)};
}

/// Returns the device of a rank that has one.
inline torch::Device device_of(const ProcessGroup& group) { return device_at(group.rank()); }

/// Returns a tensor of the same number, computed when somebody asks for it.
inline at::Tensor filled(torch::Device device, double value, std::int64_t size = 1000) {
  return at::full({size}, value, at::TensorOptions(torch::kFloat).device(device));
}

inline std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

/// Runs the body on ranks that are threads, each with a device of its own.
inline void on_devices(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  run_ranks(ranks, [&](const ProcessGroup& world) { body(world.with_device(device_of(world))); });
}

/// Tests over each engine that carries tensors between devices.
class OverEngines : public ::testing::TestWithParam<std::string> {
 protected:
  OverEngines() {
    install();
    if (GetParam() == "nccl") nccl_.emplace();
  }

  std::optional<UseEmulatedNccl> nccl_;
};

inline const auto kEngines = ::testing::Values("staged", "nccl");

inline std::string name_of_engine(const ::testing::TestParamInfo<std::string>& engine) {
  return engine.param;
}

}  // namespace lockstep::emulated
