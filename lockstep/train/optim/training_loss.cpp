#include "lockstep/train/optim/training_loss.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "lockstep/data/batch.h"

namespace lockstep {

torch::Tensor training_loss(
    const torch::Tensor& scores, const torch::Tensor& labels, const TrainOptions& options) {
  const torch::Tensor sum = at::cross_entropy_loss(
      scores.to(torch::kFloat), labels, {}, at::Reduction::Sum, kIgnoredTarget, options.smoothing);
  return sum / static_cast<double>(labels.size(0));
}

}  // namespace lockstep
