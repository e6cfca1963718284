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

/// Makes a backend that carries tensors between the ranks' GPUs by NCCL, which LibTorch's CUDA part
/// has loaded. A collective of `host`, by which the ranks meet.
///
/// Calls run on streams of their own; wait() lets the current stream wait, and the host goes on. A
/// thread looks for errors and for calls that take longer than the timeout: then all under way
/// ends, and the next call or wait throws CommError or TimeoutError that names the late one.
std::shared_ptr<Backend> make_nccl_backend(Backend& host, torch::Device device);

/// Makes a backend that carries tensors of an accelerator by way of the host.
///
/// Note [Staged collectives]
/// For accelerators that no engine of their own connects: a tensor is copied to pinned memory,
/// `host` carries it from there, and the result is copied back. Copies run on streams beside the
/// one that computes, and a thread begins what has arrived, in the order of the calls, and brings
/// back what is done: so a backward goes on meanwhile. What is called takes the tensor as the
/// current stream leaves it. wait() blocks the caller until the result is on its way back, then
/// lets the current stream wait for it.
///
/// `host` is not used by anybody else from now on.
std::shared_ptr<Backend> make_staged_backend(std::shared_ptr<Backend> host, torch::DeviceType type);

}  // namespace lockstep
