#include "metrics.h"

#include <algorithm>

void Metrics::add(
    const torch::Tensor& loss, const torch::Tensor& scores, const torch::Tensor& target) {
  const torch::NoGradGuard no_gradients;
  const auto best = std::get<1>(scores.topk(std::min<std::int64_t>(5, scores.size(1)), 1));
  const auto hits = best.eq(target.unsqueeze(1));
  const auto images = target.size(0);
  sums_[0] += images;
  sums_[1] += loss.to(torch::kDouble) * images;
  sums_[2] += hits.select(1, 0).sum();
  sums_[3] += hits.sum();
}

void Metrics::sum_over(const lockstep::ProcessGroup& world) { world.all_reduce(sums_).wait(); }
