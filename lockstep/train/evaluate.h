#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/options/eval_metric.h"

namespace lockstep {

/// Is how well a model does on a data set.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;                   ///< share of samples whose highest score is right
  std::optional<double> accuracy5 = {};  ///< one of whose five is; none of five classes or fewer
  std::int64_t samples = 0;              ///< of all ranks together
};

/// Gives the scores [samples, classes] of images.
using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

/// Counts over the shares of all ranks; with shares that repeat nothing the result is exact. A
/// sample labelled kIgnoredTarget does not count. A collective.
Evaluation evaluate(const Forward& forward, const Loader& share, const ProcessGroup& world);

/// Gives an evaluation's value of a metric; with five classes or fewer kTop5 is kTop1.
double value_of(const Evaluation& evaluation, EvalMetric metric);

}  // namespace lockstep
