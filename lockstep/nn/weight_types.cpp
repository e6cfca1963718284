#include "lockstep/nn/weight_types.h"

namespace lockstep::nn {
namespace {

struct Pair {
  ElementType file;
  torch::ScalarType torch;
};

constexpr Pair kTypes[] = {
    {ElementType::kBool, torch::kBool},
    {ElementType::kUint8, torch::kUInt8},
    {ElementType::kInt8, torch::kInt8},
    {ElementType::kFloat8E5m2, torch::kFloat8_e5m2},
    {ElementType::kFloat8E4m3fn, torch::kFloat8_e4m3fn},
    {ElementType::kFloat8E8m0fnu, c10::ScalarType::Float8_e8m0fnu},
    {ElementType::kFloat8E4m3fnuz, c10::ScalarType::Float8_e4m3fnuz},
    {ElementType::kFloat8E5m2fnuz, c10::ScalarType::Float8_e5m2fnuz},
    {ElementType::kInt16, torch::kInt16},
    {ElementType::kUint16, c10::ScalarType::UInt16},
    {ElementType::kFloat16, torch::kFloat16},
    {ElementType::kBfloat16, torch::kBFloat16},
    {ElementType::kInt32, torch::kInt32},
    {ElementType::kUint32, c10::ScalarType::UInt32},
    {ElementType::kFloat32, torch::kFloat32},
    {ElementType::kComplex64, torch::kComplexFloat},
    {ElementType::kFloat64, torch::kFloat64},
    {ElementType::kInt64, torch::kInt64},
    {ElementType::kUint64, c10::ScalarType::UInt64},
    {ElementType::kComplex128, torch::kComplexDouble},
};

}  // namespace

std::optional<torch::ScalarType> scalar_type_of(ElementType type) {
  for (const Pair& pair : kTypes) {
    if (pair.file == type) return pair.torch;
  }
  return std::nullopt;
}

std::optional<ElementType> element_type_of(torch::ScalarType type) {
  for (const Pair& pair : kTypes) {
    if (pair.torch == type) return pair.file;
  }
  return std::nullopt;
}

}  // namespace lockstep::nn
