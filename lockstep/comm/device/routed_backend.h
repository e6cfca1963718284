#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/backend.h"

namespace lockstep {

/// Makes the backend of a type of accelerator for the ranks of a group of the host, which it may
/// meet by and need not keep. A collective.
using MakeDeviceBackend = std::shared_ptr<Backend> (*)(Backend& host, torch::Device device);

/// Registers the engine that carries tensors of that type of accelerator between its devices; that
/// of CUDA is NCCL unless another is registered. Null: tensors go through the host. Returns the one
/// before.
MakeDeviceBackend register_device_backend(torch::DeviceType type, MakeDeviceBackend make);

/// Makes a backend that carries tensors of the host by `host`, and those of a rank's accelerators
/// by the engine that is registered for their type, or through the host where there is none. All
/// ranks have as many, and their first ones are connected, their second ones, and so on. A
/// collective.
std::shared_ptr<Backend> make_routed_backend(
    std::shared_ptr<Backend> host, const std::vector<torch::Device>& devices);

}  // namespace lockstep
