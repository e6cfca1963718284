#pragma once

#include "lockstep/comm/device/nccl_api.h"

namespace lockstep::emulated {

/// NCCL's functions on the emulated streams, which libnccl.so.2 has by NCCL's names.
extern const nccl::Api kNcclFunctions;

/// Lets groups of threads carry tensors of the emulated devices by Lockstep's backend for NCCL, on
/// an NCCL of the emulated streams, while it exists; else they go through the host.
class UseEmulatedNccl {
 public:
  UseEmulatedNccl();
  ~UseEmulatedNccl();
  UseEmulatedNccl(const UseEmulatedNccl&) = delete;
  UseEmulatedNccl& operator=(const UseEmulatedNccl&) = delete;
};

}  // namespace lockstep::emulated
