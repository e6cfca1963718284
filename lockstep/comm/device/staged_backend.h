#pragma once

#include <memory>

#include <torch/types.h>

#include "lockstep/comm/backend.h"

namespace lockstep {

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
