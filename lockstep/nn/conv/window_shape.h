#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

namespace lockstep::nn::conv {

/// A kernel that slides over images, which are NHWC. Its window is what it sees at a time.
struct WindowShape {
  std::int64_t images, channels;
  std::int64_t height, width, out_height, out_width;
  std::int64_t kernel_height, kernel_width;
  std::int64_t stride_height, stride_width, padding_height, padding_width;

  std::int64_t taps() const { return kernel_height * kernel_width; }
};

}  // namespace lockstep::nn::conv
