#pragma once

#include <concepts>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The alignment of a tensor's memory, in bytes: that of LibTorch's allocator on the host.
///
/// Note [Alignment]
/// MKL rounds a product differently where its output, or a matrix that it reads, begins at an
/// address that is no multiple of 16 bytes. Tensors that share memory therefore each begin at a
/// multiple of this: their values then have the same bits wherever they lie, and the bits of
/// tensors with memory of their own. A run that goes on from a snapshot, whose first gradients lie
/// elsewhere than the later ones, needs that to end as one that was never stopped.
inline constexpr std::int64_t kTensorAlignment = 64;

template <std::integral Number>
Number rounded_up(Number number, Number unit) {
  return (number + unit - 1) / unit * unit;
}

/// Returns how many elements of memory a tensor takes if another one begins behind it.
inline std::int64_t aligned_elements(const at::Tensor& tensor) {
  return rounded_up(
      tensor.numel(), kTensorAlignment / static_cast<std::int64_t>(tensor.element_size()));
}

}  // namespace lockstep
