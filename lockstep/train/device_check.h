#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// The result of one trial on the devices of this host.
struct DeviceFinding {
  std::string what;     ///< `cuda:0 and cuda:1: collectives by nccl`
  std::string failure;  ///< why it did not pass; empty if it did
  double seconds = 0;
};

/// Tries what training needs on all devices of a type, and compares with the CPU: copies, streams,
/// copies and collectives between all pairs, and a small net trained by every way of spreading it.
/// Reports each trial as it ends, and returns all.
std::vector<DeviceFinding> check_devices(
    torch::DeviceType type, const std::function<void(const DeviceFinding&)>& report);

}  // namespace lockstep
