#include "lockstep/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>

namespace lockstep {

Evaluation evaluate(const Forward& forward, const Loader& share, const ProcessGroup& world) {
  const at::NoGradGuard no_gradients;
  const torch::Tensor sums = at::zeros({3}, torch::kDouble);  // loss, hits, samples
  const torch::Tensor loss = sums[0], hits = sums[1], samples = sums[2];
  for (auto batch = share.begin(); batch != share.end(); ++batch) {
    const torch::Tensor scores = forward(batch->data);
    loss.add_(at::cross_entropy_loss(scores, batch->target, {}, at::Reduction::Sum));
    hits.add_(scores.argmax(1).eq(batch->target).sum());
    samples.add_(batch->target.size(0));
  }
  world.all_reduce(sums).wait();
  const auto* total = sums.const_data_ptr<double>();
  return {
      .loss = total[0] / total[2],
      .accuracy = total[1] / total[2],
      .samples = static_cast<std::int64_t>(total[2])};
}

}  // namespace lockstep
