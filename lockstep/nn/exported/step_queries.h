#pragma once

// What fusions ask of steps.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/fused/batch_norm_kernel.h"

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

/// Calls `visit` with the places of all results of a step that are kept.
template <typename Visit>
void visit_results(const Step& step, const Visit& visit) {
  for (const auto& result : step.results) {
    if (const auto* place = std::get_if<Place>(&result)) {
      if (*place != kNowhere) visit(*place);
      continue;
    }
    for (const Place place : std::get<std::vector<Place>>(result))
      if (place != kNowhere) visit(place);
  }
}

/// Returns how often steps and outputs read each value of a graph.
inline std::vector<std::size_t> uses_of(const GraphParts& graph) {
  std::vector<std::size_t> uses(graph.values);
  const auto count = [&](Place place) { ++uses[static_cast<std::size_t>(place)]; };
  for (const Step& step : graph.steps)
    for (const Operand& operand : step.operands) visit_values(operand, count);
  for (const Operand& output : graph.outputs) visit_values(output, count);
  return uses;
}

/// Returns the activation that a step is, in place or not.
inline BehindNorm known_activation(const Step& step) {
  constexpr std::pair<std::string_view, BehindNorm> kKnown[] = {{"aten::relu", BehindNorm::kRelu},
      {"aten::silu", BehindNorm::kSilu}, {"aten::hardswish", BehindNorm::kHardswish}};
  for (const auto& [name, activation] : kKnown)
    if (calls(step, name) || calls(step, std::string(name) + "_")) return activation;
  return BehindNorm::kNothing;
}

/// Returns the activation among the operators behind a batch norm.
inline fused::Activation activation_of(BehindNorm behind) {
  if (behind == BehindNorm::kNothing) return fused::Activation::kNone;
  if (behind == BehindNorm::kSilu) return fused::Activation::kSilu;
  return behind == BehindNorm::kHardswish ? fused::Activation::kHardswish
                                          : fused::Activation::kRelu;
}

}  // namespace lockstep::nn::exported
