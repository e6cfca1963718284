#include "lockstep/train/options/eval_metric.h"

#include <cmath>

namespace lockstep {

bool larger_is_better(EvalMetric metric) { return metric != EvalMetric::kLoss; }

bool is_better(double value, const std::optional<BestEpoch>& best, EvalMetric metric) {
  if (!best) return !std::isnan(value);
  return larger_is_better(metric) ? value > best->value : value < best->value;
}

}  // namespace lockstep
