#include "lockstep/train/task/classification.h"

#include <tuple>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep {
namespace {

// With as many classes or fewer the right one always is among the highest, and there is no score.
constexpr std::int64_t kHighest = 5;

// Hits; then the samples that kTop5 counts, and its hits.
enum Own : std::int64_t { kHits = Findings::kOwn, kCountedOfFive, kHitsOfFive };

}  // namespace

Findings Classification::measure(const torch::Tensor& scores, const torch::Tensor& labels) const {
  const torch::Tensor counted = labels.ne(kIgnoredTarget).sum();
  const torch::Tensor hits = scores.argmax(1).eq(labels).sum();
  torch::Tensor counted_of_five = at::zeros_like(counted), hits_of_five = counted_of_five;
  if (scores.size(1) > kHighest) {
    counted_of_five = counted;
    hits_of_five = std::get<1>(scores.topk(kHighest, 1)).eq(labels.unsqueeze(1)).sum();
  }
  return {sums_of(
      {measured_.sum(scores, labels), counted, counted, hits, counted_of_five, hits_of_five})};
}

void Classification::score(const Findings& all, Evaluation& result) const {
  const auto* const sum = all.sums.const_data_ptr<double>();
  result.scores.top1 = sum[kHits] / sum[Findings::kCounted];
  if (sum[kCountedOfFive] > 0) result.scores.top5 = sum[kHitsOfFive] / sum[kCountedOfFive];
}

}  // namespace lockstep
