#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Copies elements that lie without gaps in another order, such as channels last, row-major.
///
/// `to` and `from` have the bytes of all elements and do not overlap; `strides` are in elements,
/// none negative. One thread, no LibTorch: it runs beside a training step.
void copy_row_major(std::span<std::uint8_t> to, std::span<const std::uint8_t> from,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes);

}  // namespace lockstep
