#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/record/metrics.h"
#include "lockstep/train/optim/loss.h"

namespace lockstep {

/// The scores of a model on a data set.
struct Evaluation {
  Scores scores;
  std::int64_t samples = 0;  ///< of all ranks together
};

/// Returns the scores [samples, classes] of a batch.
using Forward = std::function<torch::Tensor(const Batch&)>;

/// Looks at the scores of a batch and at its labels, both where they were computed.
using OnBatch = std::function<void(const torch::Tensor& scores, const torch::Tensor& labels)>;

/// Counts over the shares of all ranks; with shares that repeat nothing the result is exact. A
/// sample labelled kIgnoredTarget does not count. A collective.
///
/// `leaves` is asked after each batch; when it says so, on all ranks after the same batch, the
/// evaluation is abandoned and there is no result. `on_batch` is shown each batch.
std::optional<Evaluation> evaluate(const Forward& forward, const Loader& share,
    const ProcessGroup& world, const Loss& loss, const std::function<bool()>& leaves = {},
    const OnBatch& on_batch = {});

/// Returns the value of a metric, all of which were measured; with five classes or fewer kTop5 is
/// kTop1.
double value_of(const Scores& scores, EvalMetric metric);

}  // namespace lockstep
