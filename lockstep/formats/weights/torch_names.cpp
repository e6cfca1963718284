#include "lockstep/formats/weights/torch_names.h"

#include <array>
#include <utility>

namespace lockstep::pickle {
namespace {

constexpr std::array<std::pair<std::string_view, ElementType>, 12> kStorages{{
    {"torch BoolStorage", ElementType::kBool},
    {"torch ByteStorage", ElementType::kUint8},
    {"torch CharStorage", ElementType::kInt8},
    {"torch ShortStorage", ElementType::kInt16},
    {"torch HalfStorage", ElementType::kFloat16},
    {"torch BFloat16Storage", ElementType::kBfloat16},
    {"torch IntStorage", ElementType::kInt32},
    {"torch FloatStorage", ElementType::kFloat32},
    {"torch ComplexFloatStorage", ElementType::kComplex64},
    {"torch DoubleStorage", ElementType::kFloat64},
    {"torch LongStorage", ElementType::kInt64},
    {"torch ComplexDoubleStorage", ElementType::kComplex128},
}};

}  // namespace

std::optional<ElementType> storage_type_named(std::string_view name) {
  for (const auto& [known, type] : kStorages) {
    if (name == known) return type;
  }
  return std::nullopt;
}

std::optional<std::string_view> storage_name(ElementType type) {
  for (const auto& [name, known] : kStorages) {
    if (type == known) return name;
  }
  return std::nullopt;
}

std::optional<ElementType> element_type_named(std::string_view name) {
  constexpr std::string_view kModule = "torch ";
  if (!name.starts_with(kModule)) return std::nullopt;
  return element_type_of_torch(name.substr(kModule.size()));
}

}  // namespace lockstep::pickle
