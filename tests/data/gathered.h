#pragma once

#include <cstdint>
#include <span>

#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep::data {

inline torch::Tensor gather_images(const InMemoryImages& images,
    std::span<const std::int64_t> indices, const PixelScale& scale,
    torch::ScalarType dtype = torch::kFloat) {
  auto out = empty_images(std::ssize(indices), images.shape(), dtype, true);
  gather_images_into(out, images, indices, scale);
  return out;
}

inline torch::Tensor gather_labels(
    const InMemoryImages& images, std::span<const std::int64_t> indices) {
  auto out = torch::empty({std::ssize(indices)}, torch::TensorOptions().dtype(torch::kLong));
  gather_labels_into(out, images, indices);
  return out;
}

}  // namespace lockstep::data
