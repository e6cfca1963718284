#pragma once

#include <memory>

#include <torch/types.h>

#include "lockstep/comm/backend.h"

namespace lockstep {

/// Makes a backend that carries tensors between the ranks' GPUs by NCCL, which LibTorch's CUDA part
/// has loaded. A collective of `host`, by which the ranks meet.
///
/// Calls run on streams of their own; wait() lets the current stream wait, and the host goes on. A
/// thread looks for errors and for calls that take longer than the timeout: then all under way
/// ends, and the next call or wait throws CommError or TimeoutError that names the late one.
std::shared_ptr<Backend> make_nccl_backend(Backend& host, torch::Device device);

}  // namespace lockstep
