#include "lockstep/formats/weights/element_type.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

struct Row {
  ElementType type;
  std::size_t bytes;
  std::string_view torch;
  std::string_view safetensors;
};

constexpr std::array kRows{
    Row{ElementType::kBool, 1, "bool", "BOOL"},
    Row{ElementType::kUint8, 1, "uint8", "U8"},
    Row{ElementType::kInt8, 1, "int8", "I8"},
    Row{ElementType::kFloat8E5m2, 1, "float8_e5m2", "F8_E5M2"},
    Row{ElementType::kFloat8E4m3fn, 1, "float8_e4m3fn", "F8_E4M3"},
    Row{ElementType::kFloat8E8m0fnu, 1, "float8_e8m0fnu", "F8_E8M0"},
    Row{ElementType::kFloat8E4m3fnuz, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    Row{ElementType::kFloat8E5m2fnuz, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ"},
    Row{ElementType::kInt16, 2, "int16", "I16"},
    Row{ElementType::kUint16, 2, "uint16", "U16"},
    Row{ElementType::kFloat16, 2, "float16", "F16"},
    Row{ElementType::kBfloat16, 2, "bfloat16", "BF16"},
    Row{ElementType::kInt32, 4, "int32", "I32"},
    Row{ElementType::kUint32, 4, "uint32", "U32"},
    Row{ElementType::kFloat32, 4, "float32", "F32"},
    Row{ElementType::kComplex64, 8, "complex64", "C64"},
    Row{ElementType::kFloat64, 8, "float64", "F64"},
    Row{ElementType::kInt64, 8, "int64", "I64"},
    Row{ElementType::kUint64, 8, "uint64", "U64"},
    Row{ElementType::kComplex128, 16, "complex128", ""},
};

// A type's row is found by its number.
static_assert([] {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].type) != i) return false;
  }
  return true;
}());

const Row& row_of(ElementType type) { return kRows.at(static_cast<std::size_t>(type)); }

std::optional<ElementType> find(std::string_view Row::*column, std::string_view name) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.*column == name; });
  if (row == kRows.end() || name.empty()) return std::nullopt;
  return row->type;
}

}  // namespace

std::size_t bytes_of(ElementType type) { return row_of(type).bytes; }

std::string_view torch_name(ElementType type) { return row_of(type).torch; }

std::optional<std::string_view> safetensors_name(ElementType type) {
  const std::string_view name = row_of(type).safetensors;
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<ElementType> element_type_of_torch(std::string_view name) {
  return find(&Row::torch, name);
}

std::optional<ElementType> element_type_of_safetensors(std::string_view name) {
  return find(&Row::safetensors, name);
}

}  // namespace lockstep
