#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The metric that compares epochs, as timm's --eval-metric.
enum class EvalMetric { kLoss, kTop1, kTop5 };
constexpr auto names_of(EvalMetric) {
  return std::array{EnumName{EvalMetric::kLoss, "loss"}, EnumName{EvalMetric::kTop1, "top1"},
      EnumName{EvalMetric::kTop5, "top5"}};
}

/// Returns whether more is better.
constexpr bool larger_is_better(EvalMetric metric) { return metric != EvalMetric::kLoss; }

/// The epoch that did best so far; none before the first.
struct BestEpoch {
  std::int64_t epoch = 0;  ///< counted from 1
  double value = 0;        ///< of the metric
};

/// Returns whether a value is better than the best so far: of equal ones the first stays, NaN is
/// never better.
inline bool is_better(double value, const std::optional<BestEpoch>& best, EvalMetric metric) {
  if (!best) return !std::isnan(value);
  return larger_is_better(metric) ? value > best->value : value < best->value;
}

}  // namespace lockstep
