#pragma once

#include <cstdint>
#include <span>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// The kinds of numbers that a tensor has, however wide they are.
enum class NumberKind {
  kFloat,    ///< float16, bfloat16, float32, float64
  kInteger,  ///< 8 to 32 bits, and int64
  kBool,
  kOther  ///< complex, of 8 bits, uint64
};

/// Returns the kind of a type's numbers.
NumberKind kind_of(ElementType type);

/// Copies numbers as they lie in a file to others: float, double or std::int64_t.
///
/// Numbers of float are rounded where `Number` is narrower; of bool any byte but 0 is 1. The bytes
/// need not be aligned. A type of kOther, one of kFloat for integers, and another number of bytes
/// than `out` needs are an InvalidArgument.
template <typename Number>
void copy_numbers(ElementType type, std::span<const std::uint8_t> bytes, std::span<Number> out);

}  // namespace lockstep
