#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/device/accelerator.h"

namespace lockstep::data {

/// The images of a set in memory as they are, a byte for a pixel, on a device, which gathers and
/// scales them: for a batch the host sends its indices alone.
class DeviceImages {
 public:
  /// Copies the set. Waits until it is there.
  DeviceImages(const StoredSamples& set, torch::Device device);

  /// Returns the images [indices, channels, height, width] and their classes, on the device; to the
  /// bit what the set gives in the host's memory. Waits for no device. An index that is none of the
  /// set's images is an InvalidArgument.
  Batch batch(
      std::span<const std::int64_t> indices, torch::ScalarType dtype, bool channels_last) const;

  torch::Device device() const { return pixels_.device(); }

 private:
  torch::Tensor on_device(std::span<const std::int64_t> indices) const;

  torch::Tensor pixels_;            // [images, height, width, channels], uint8
  torch::Tensor classes_;           // [images], int64
  torch::Tensor floats_, bfloats_;  // what a pixel becomes: [256 * channels]
  torch::Tensor channels_;          // 0 to channels - 1
  mutable DeviceCopier copier_;
};

/// The sets that a run keeps on its device, each once.
class ResidentSets {
 public:
  explicit ResidentSets(torch::Device device) : device_(device) {}

  /// Returns the images of which these samples are mere copies, on the device; null for others, on
  /// the CPU, and for sets of over a gibibyte, whose memory training may need.
  std::shared_ptr<const DeviceImages> of(const Samples& samples);

 private:
  torch::Device device_;
  std::map<const StoredSamples*, std::shared_ptr<const DeviceImages>> sets_;
};

}  // namespace lockstep::data
