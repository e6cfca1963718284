#pragma once

#include <torch/types.h>

#include "lockstep/parallel/operators/operator_mode.h"

namespace lockstep {

/// Is what a batch norm layer in training asks of LibTorch. Tensors that the layer lacks are
/// undefined.
struct BatchNormCall {
  const torch::Tensor& input;  ///< [N, C, ...]
  torch::Tensor weight;        ///< [C]
  torch::Tensor bias;          ///< [C]
  torch::Tensor running_mean;  ///< [C], updated in place by the usual rule
  torch::Tensor running_var;   ///< [C]
  double momentum;
  double eps;
};

/// Decides how batch norm layers in training compute.
class BatchNormRule {
 public:
  virtual ~BatchNormRule() = default;
  /// Gives the layer's output, differentiable.
  virtual torch::Tensor batch_norm(const BatchNormCall& call) = 0;
};

/// Computes as LibTorch does, by the batch's statistics, and leaves the running ones alone.
torch::Tensor batch_norm_without_running_statistics(const BatchNormCall& call);

/// Applies a rule to the batch norm layers of this thread while it lives (see Note [Operator
/// rules]). Evaluation is not touched.
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

}  // namespace lockstep
