#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// The most dimensions that a tensor of PyTorch can have in its iterators.
inline constexpr std::size_t kMostDimensions = 64;

/// Returns the bytes of a tensor; nothing if a size is negative, their product has no place in 63
/// bits, or there are more than kMostDimensions.
///
/// Sizes of 0 count as 1 for that bound: the strides of an empty tensor must not overflow, either.
std::optional<std::uint64_t> tensor_bytes(ElementType type, std::span<const std::int64_t> shape);

/// Returns a shape as `(2, 3)`.
std::string shape_text(std::span<const std::int64_t> shape);

/// Checks what a writer is given: bytes that fit type and shape, names in UTF-8, none twice.
/// Otherwise throws InvalidArgument that begins with `operation`.
void check_entries(const char* operation, std::span<const TensorEntry> entries);

/// Returns whether elements of that shape and with these strides lie row-major without gaps.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// Copies the elements of a view row-major without gaps. `storage` begins with the view's first
/// element; the caller has checked that shape and strides (in elements, none negative) stay within
/// it.
std::vector<std::uint8_t> strided_copy(std::span<const std::uint8_t> storage,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes);

}  // namespace lockstep
