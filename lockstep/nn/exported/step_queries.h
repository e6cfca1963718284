#pragma once

// What fusions ask of steps.

#include <optional>
#include <string_view>

#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::nn::exported {

/// Returns whether a step calls that operator of LibTorch.
inline bool calls(const Step& step, std::string_view name, std::string_view overload = "") {
  return step.operation && step.operation->schema().name() == name &&
         step.operation->schema().overload_name() == overload;
}

/// Returns whether an operand is a value as it is.
inline bool is_value(const Operand& operand) {
  return operand.kind == Operand::Kind::kValue && operand.conversion == Operand::Conversion::kNone;
}

/// Finds the number that an operand is in every run.
inline std::optional<double> number_of(const Operand& operand) {
  if (operand.kind != Operand::Kind::kConstant) return std::nullopt;
  const c10::IValue& constant = operand.constant;
  if (constant.isScalar()) return constant.toScalar().toDouble();
  const bool is_number = constant.isTensor() && constant.toTensor().dim() == 0;
  return is_number ? std::optional(constant.toTensor().item().toDouble()) : std::nullopt;
}

/// Calls `visit` with the places of all values that an operand is made of.
template <typename Visit>
void visit_values(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kValue || operand.kind == Operand::Kind::kLastUse)
    visit(operand.place);
  for (const Operand& item : operand.items) visit_values(item, visit);
}

}  // namespace lockstep::nn::exported
