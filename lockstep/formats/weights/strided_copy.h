#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Tells whether elements of that shape and with these strides lie row-major without gaps.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// Copies the elements of a view row-major without gaps. `storage` begins with the view's first
/// element; the caller has checked that shape and strides (in elements, none negative) stay within
/// it.
std::vector<std::uint8_t> strided_copy(
    std::span<const std::uint8_t> storage, std::span<const std::int64_t> shape,
    std::span<const std::int64_t> strides, std::size_t element_bytes);

}  // namespace lockstep
