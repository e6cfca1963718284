#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Is the most dimensions that a tensor of PyTorch can have in its iterators.
inline constexpr std::size_t kMostDimensions = 64;

/// Gives the bytes of a tensor; nothing if a size is negative, their product has no place in 63
/// bits, or there are more than kMostDimensions.
///
/// Sizes of 0 count as 1 for that bound: the strides of an empty tensor must not overflow, either.
std::optional<std::uint64_t> tensor_bytes(ElementType type, std::span<const std::int64_t> shape);

/// Says `(2, 3)`.
std::string shape_text(std::span<const std::int64_t> shape);

/// Checks what a writer is given: bytes that fit type and shape, names in UTF-8, none twice.
/// Otherwise throws InvalidArgument that begins with `operation`.
void check_entries(const char* operation, std::span<const TensorEntry> entries);

}  // namespace lockstep
