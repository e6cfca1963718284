#include "lockstep/formats/weights/tensor_numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Bool {
  std::uint8_t byte;
  operator int() const { return byte == 0 ? 0 : 1; }  // NOLINT(*-explicit-*): stands for a number
};

// The upper half of a float.
struct Bfloat16 {
  std::uint16_t bits;
  operator float() const {  // NOLINT(*-explicit-*): stands for a number
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
};

// 1 sign, 5 bits of exponent with bias 15, 10 of mantissa (IEEE 754).
struct Float16 {
  std::uint16_t bits;
  operator float() const {  // NOLINT(*-explicit-*): stands for a number
    constexpr std::uint32_t kAllOnes = 31;
    const std::uint32_t sign = std::uint32_t{bits} >> 15, exponent = bits >> 10 & 31U;
    const std::uint32_t mantissa = bits & 1023U;
    if (exponent == 0)
      return (sign == 1 ? -1.0F : 1.0F) * std::ldexp(static_cast<float>(mantissa), -24);
    const std::uint32_t wide = exponent == kAllOnes ? 255 : exponent + 127 - 15;
    return std::bit_cast<float>(sign << 31 | wide << 23 | mantissa << 13);
  }
};

template <typename From, typename Number>
void copy_all(std::span<const std::uint8_t> bytes, std::span<Number> out) {
  check(bytes.size() == out.size() * sizeof(From), "copy_numbers: ", out.size(), " numbers have ",
      out.size() * sizeof(From), " bytes, not ", bytes.size());
  if constexpr (std::is_same_v<From, Number>) {
    if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    From number;
    std::memcpy(&number, bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = static_cast<Number>(number);  // NOLINT(bugprone-signed-char-misuse): int8
  }
}

}  // namespace

NumberKind kind_of(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return NumberKind::kBool;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
    case ElementType::kFloat32:
    case ElementType::kFloat64:
      return NumberKind::kFloat;
    case ElementType::kUint8:
    case ElementType::kInt8:
    case ElementType::kInt16:
    case ElementType::kUint16:
    case ElementType::kInt32:
    case ElementType::kUint32:
    case ElementType::kInt64:
      return NumberKind::kInteger;
    default:
      return NumberKind::kOther;
  }
}

template <typename Number>
void copy_numbers(ElementType type, std::span<const std::uint8_t> bytes, std::span<Number> out) {
  check(!std::is_integral_v<Number> || kind_of(type) != NumberKind::kFloat,
      "copy_numbers: ", torch_name(type), " has no place in integers");
  switch (type) {
    case ElementType::kBool:
      return copy_all<Bool>(bytes, out);
    case ElementType::kUint8:
      return copy_all<std::uint8_t>(bytes, out);
    case ElementType::kInt8:
      return copy_all<std::int8_t>(bytes, out);
    case ElementType::kInt16:
      return copy_all<std::int16_t>(bytes, out);
    case ElementType::kUint16:
      return copy_all<std::uint16_t>(bytes, out);
    case ElementType::kFloat16:
      return copy_all<Float16>(bytes, out);
    case ElementType::kBfloat16:
      return copy_all<Bfloat16>(bytes, out);
    case ElementType::kInt32:
      return copy_all<std::int32_t>(bytes, out);
    case ElementType::kUint32:
      return copy_all<std::uint32_t>(bytes, out);
    case ElementType::kFloat32:
      return copy_all<float>(bytes, out);
    case ElementType::kFloat64:
      return copy_all<double>(bytes, out);
    case ElementType::kInt64:
      return copy_all<std::int64_t>(bytes, out);
    default:
      throw InvalidArgument(concat("copy_numbers: ", torch_name(type), " is not read"));
  }
}

template void copy_numbers(ElementType, std::span<const std::uint8_t>, std::span<float>);
template void copy_numbers(ElementType, std::span<const std::uint8_t>, std::span<double>);
template void copy_numbers(ElementType, std::span<const std::uint8_t>, std::span<std::int64_t>);

}  // namespace lockstep
