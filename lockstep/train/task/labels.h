#pragma once

#include <torch/types.h>

#include "lockstep/train/task/task.h"

namespace lockstep {

/// Returns the average precision of scores [samples] for labels [samples] that are 0 or 1, as
/// scikit-learn's: samples of equal scores are found together; without a label it is 0.
double average_precision(const torch::Tensor& scores, const torch::Tensor& labels);

/// Several labels at once: logits [N, labels], and targets [N, labels] that are 0 or 1. The loss is
/// binary cross entropy. A label is predicted where its logit is above 0.
///
/// Measures F1 over all labels together and as a mean over the labels, and the mean of their
/// average precision, for which scores and targets of a whole evaluation are kept: 16 bytes a label
/// and sample, 32 in the end, and some 80 while ranks exchange them.
class Labels final : public Task {
 public:
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& target) const override;
  torch::Tensor losses(const torch::Tensor& logits, const torch::Tensor& target) const override;
  Findings measure(const torch::Tensor& logits, const torch::Tensor& target) const override;

 private:
  void score(const Findings& all, Evaluation& result) const override;
};

}  // namespace lockstep
