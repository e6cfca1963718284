#pragma once

#include <string>
#include <vector>

#include "lockstep/plan/machine.h"

namespace lockstep::plan {

/// An accelerator as data sheets and published trainings describe it. Nothing here was measured by
/// us.
struct Device {
  std::string name;  ///< as --device takes it: `V100`
  double memory_bytes = 0;
  double bytes_per_second = 0;  ///< of its memory
  Link within = {};             ///< between such devices of one node
  double flops_32 = 0;          ///< FLOP/s that the training of a convolutional net reaches in fp32
  double flops_mixed = 0;       ///< the same in mixed precision; that of fp32 where it has none
  std::string source;           ///< of these numbers
};

/// Returns the devices that are known: K80, V100, TITAN-RTX, T4, A100, H100, L4.
const std::vector<Device>& known_devices();

/// Finds a device, in any case of its letters. Throws InvalidArgument that lists the names.
const Device& device_of(const std::string& name);

/// Returns the profile that this model may have on such a device.
///
/// The whole step takes the model's FLOP at the rate that the device reaches, shared among the
/// layers as on the device of the profile; but no layer takes less than its kernels need to be
/// started, so small batches gain nothing. The optimizer is bound by the device's memory. Throws
/// InvalidArgument for a profile that does not say how many FLOP a sample takes.
ModelProfile on_device(const ModelProfile& profile, const Device& device);

}  // namespace lockstep::plan
