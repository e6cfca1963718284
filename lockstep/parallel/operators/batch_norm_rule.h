#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/operators/operator_mode.h"

namespace lockstep {

/// The call of LibTorch by a batch norm or instance norm layer in training. Tensors that the layer
/// lacks are undefined.
struct BatchNormCall {
  const torch::Tensor& input;  ///< [N, C, ...]
  torch::Tensor weight;        ///< [C]
  torch::Tensor bias;          ///< [C]
  torch::Tensor running_mean;  ///< [C], updated in place by the usual rule
  torch::Tensor running_var;   ///< [C]
  double momentum;
  double eps;
};

/// A rule for how batch norm layers compute in training.
class BatchNormRule {
 public:
  virtual ~BatchNormRule() = default;
  /// Returns the layer's output, differentiable.
  virtual torch::Tensor batch_norm(const BatchNormCall& call) = 0;

  /// The same for an instance norm layer with running statistics. It normalises each sample by
  /// itself, so a rule may decide on these statistics alone: unless it does, LibTorch computes.
  virtual torch::Tensor instance_norm(const BatchNormCall& call);
};

/// Computes as LibTorch does, by the batch's statistics, and leaves the running ones alone.
torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call);
torch::Tensor instance_norm_without_running_statistics(const BatchNormCall& call);

/// Applies a rule to the batch norm layers of this thread while it exists (see Note [Operator
/// rules]). Evaluation is not affected, nor are outputs of instance norm layers.
class [[nodiscard]] BatchNormScope {
 public:
  explicit BatchNormScope(BatchNormRule& rule);
  ~BatchNormScope();
  BatchNormScope(const BatchNormScope&) = delete;
  BatchNormScope& operator=(const BatchNormScope&) = delete;

 private:
  BatchNormRule* before_;
  OperatorRulesOn on_;
};

/// A rule by which running statistics follow the whole batch although it passes in micro-batches.
///
/// Each micro-batch is normalised by its own statistics; the running ones are updated once, by
/// commit(), with mean and unbiased variance of all samples together. Statistics are merged by
/// Chan's formulas, in the order of the micro-batches. Those of instance norm layers are the means
/// over the samples.
class DeferredBatchNorm final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override;
  torch::Tensor instance_norm(const BatchNormCall& call) override;

  /// Updates the running statistics of all layers that were called since the last time.
  void commit();

  /// Forgets what came since the last time: a step that did not end has no statistics.
  void discard() { layers_.clear(); }

 private:
  // The unit that each value describes: a channel of the whole batch, or of one sample.
  enum class Unit { kBatch, kSample };
  struct Layer {
    torch::Tensor running_mean, running_var;
    Unit unit = Unit::kBatch;
    double momentum = 0;
    double count = 0;    ///< values a channel, or samples
    torch::Tensor mean;  ///< double [C]
    /// Sum of squared deviations, or of the samples' unbiased variances; double [C].
    torch::Tensor squares;
  };
  Layer& layer_of(const BatchNormCall& call, Unit unit);
  void add(const BatchNormCall& call);
  void add_samples(const BatchNormCall& call);

  std::vector<Layer> layers_;
};

/// A rule that leaves running statistics alone: for a forward that is computed a second time.
class FrozenStatistics final : public BatchNormRule {
 public:
  torch::Tensor batch_norm(const BatchNormCall& call) override {
    return batch_norm_without_running_statistics(call);
  }
  torch::Tensor instance_norm(const BatchNormCall& call) override {
    return instance_norm_without_running_statistics(call);
  }
};

}  // namespace lockstep
