#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep::nn::conv {

/// Returns into how many parts of rows an image is cut so that at least 16 parts come about; 1 if
/// there are so many images, or no such number divides the height.
std::int64_t parts_of_image(std::int64_t images, std::int64_t height);

/// Views channels-last images [N, C, H, W] as [N * parts, C, H / parts, W].
at::Tensor cut_rows(const at::Tensor& images, std::int64_t parts);

/// Views the parts as images again.
at::Tensor join_rows(const at::Tensor& parts_of_images, std::int64_t parts);

}  // namespace lockstep::nn::conv
