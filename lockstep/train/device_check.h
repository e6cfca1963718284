#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep {

/// The result of one trial on the devices of this host.
struct DeviceFinding {
  std::string what;          ///< `cuda:0 and cuda:1: collectives`
  std::string detail = {};   ///< `by NCCL 2.28.9`; may be empty
  std::string failure = {};  ///< why it did not pass; empty if it did
  double seconds = 0;
};

/// Tries what training needs on all devices of a type, and compares with the CPU, without TF32:
/// copies, streams, snapshots, copies and collectives between all pairs, and a small net trained by
/// every way of spreading it, some in half precision. A device that is alone counts as two, whose
/// ranks meet by way of the host. Reports each trial as it ends, and returns all.
std::vector<DeviceFinding> check_devices(const std::vector<torch::Device>& devices,
    const std::function<void(const DeviceFinding&)>& report);

/// All devices of a type.
std::vector<torch::Device> devices_of_type(torch::DeviceType type);

/// Says what so many devices are too few for; empty if they can show everything.
std::string not_tried_on(int devices);

}  // namespace lockstep
