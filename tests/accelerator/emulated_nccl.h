#pragma once

namespace lockstep::emulated {

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
