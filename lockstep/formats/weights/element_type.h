#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

/// The type of a tensor's elements in a file.
///
/// The order is that in which safetensors lists its types: its writers put later ones first.
enum class ElementType : std::uint8_t {
  kBool,
  kUint8,
  kInt8,
  kFloat8E5m2,
  kFloat8E4m3fn,
  kFloat8E8m0fnu,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
  kInt16,
  kUint16,
  kFloat16,
  kBfloat16,
  kInt32,
  kUint32,
  kFloat32,
  kComplex64,
  kFloat64,
  kInt64,
  kUint64,
  kComplex128,  ///< safetensors has no name for it
};

/// Returns the bytes of one element.
std::size_t bytes_of(ElementType type);

/// Returns PyTorch's name, such as `float32`.
std::string_view torch_name(ElementType type);

/// Returns safetensors' name, such as `F32`; nothing for complex128.
std::optional<std::string_view> safetensors_name(ElementType type);

/// Finds the type that PyTorch calls so.
std::optional<ElementType> element_type_of_torch(std::string_view name);

/// Finds the type that safetensors calls so.
std::optional<ElementType> element_type_of_safetensors(std::string_view name);

}  // namespace lockstep
