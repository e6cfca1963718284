#include "lockstep/train/options/eval_metric.h"

#include <cmath>

namespace lockstep {

const char* name_of(EvalMetric metric) {
  if (metric == EvalMetric::kLoss) return "loss";
  return metric == EvalMetric::kTop1 ? "top1" : "top5";
}

bool larger_is_better(EvalMetric metric) { return metric != EvalMetric::kLoss; }

bool is_better(double value, const std::optional<BestEpoch>& best, EvalMetric metric) {
  if (!best) return !std::isnan(value);
  return larger_is_better(metric) ? value > best->value : value < best->value;
}

}  // namespace lockstep
