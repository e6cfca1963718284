#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/operators/batch_norm_rule.h"

namespace lockstep {

/// Lets running statistics follow the whole batch although it passes in micro-batches.
///
/// Each micro-batch is normalised by its own statistics, as without it; the running ones are
/// updated once, by commit(), with mean and unbiased variance of all samples together. Statistics
/// are merged by Chan's formulas, in the order of the micro-batches.
class DeferredBatchNorm final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override;

  /// Updates the running statistics of all layers that were called since the last time.
  void commit();

 private:
  struct Layer {
    torch::Tensor running_mean, running_var;
    double momentum = 0;
    double count = 0;             ///< values a channel
    torch::Tensor mean, squares;  ///< double [C]; squares: sum of squared deviations
  };
  Layer& layer_of(const BatchNormCall& call);

  std::vector<Layer> layers_;
};

/// Leaves running statistics alone: for a forward that is computed a second time.
class FrozenStatistics final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override {
    return batch_norm_without_running_statistics(call);
  }
};

}  // namespace lockstep
