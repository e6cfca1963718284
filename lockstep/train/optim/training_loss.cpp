#include "lockstep/train/optim/training_loss.h"

#include <ATen/ops/cross_entropy_loss.h>

namespace lockstep {
namespace {

constexpr std::int64_t kIgnored = -100;

}  // namespace

torch::Tensor training_loss(
    const torch::Tensor& scores, const torch::Tensor& labels, double smoothing) {
  const torch::Tensor sum = at::cross_entropy_loss(
      scores.to(torch::kFloat), labels, {}, at::Reduction::Sum, kIgnored, smoothing);
  return sum / static_cast<double>(labels.size(0));
}

}  // namespace lockstep
