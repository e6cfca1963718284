#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// Names by what an epoch is better than another, as timm's --eval-metric.
enum class EvalMetric { kLoss, kTop1, kTop5 };

/// Gives the name on the command line: loss, top1, top5.
const char* name_of(EvalMetric metric);

/// Says whether more is better.
bool larger_is_better(EvalMetric metric);

/// Is the epoch that did best so far; none before the first.
struct BestEpoch {
  std::int64_t epoch = 0;  ///< counted from 1
  double value = 0;        ///< of the metric
};

/// Says whether a value is better than the best so far: of equal ones the first stays, NaN is never
/// better.
bool is_better(double value, const std::optional<BestEpoch>& best, EvalMetric metric);

}  // namespace lockstep
